"""Learned bases: the rounding by the definition, a lower loss than Hadamard bases, and the same bytes for a seed."""

from functools import cache

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.calibration import learned_rotation
from qbench.calibration.learned_rotation import LearnedRotation, RoundedDecoder, learn_rotation, round_inputs
from qbench.calibration.run import quantized_model
from qbench.run.work import RANDOM, CalibrationWork
from qbench.runtime import load_model
from quant.artifacts import HFSource, make_artifact_job, write_artifact
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.job import QuantizationJob, make_job
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.rotation import RotatedSource
from quant.rotation.basis import matrix_of

W4A4 = get_format("w4a4")
WINDOWS = np.random.default_rng(3).integers(0, 160, (4, 24))


def job_of(recipe: str = "spin-rtn-w4a4+kv-int8") -> QuantizationJob:
    config = small_config("llama")
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][:, 5] *= 30  # an outlier channel
    return make_job(ArraySource(config, weights), get_recipe(recipe))


@cache
def learned(seed: int = 0) -> LearnedRotation:
    return learn_rotation(job_of(), WINDOWS, seed)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(learned_rotation, "STEPS", 20)


def test_the_loss_falls():
    assert learned().after < 0.95 * learned().before


@pytest.mark.parametrize("losses, best", [([1, 2, 3, 4], 0), ([4, 2, 1, 3], 2), ([4, 3, 2, 1], 3)])
def test_the_bases_of_least_divergence_on_held_out_windows_stay(monkeypatch, losses, best):
    """One of the start and three looks."""
    looked_at, coming = [], iter(losses)
    judge = learned_rotation._Judge
    monkeypatch.setattr(judge, "_loss", lambda self, matrices: looked_at.append(list(matrices)) or next(coming))
    monkeypatch.setattr(learned_rotation, "STEPS", 3)
    monkeypatch.setattr(learned_rotation, "CHECK", 1)
    found = learn_rotation(job_of(), WINDOWS, 0)
    assert (found.before, found.after) == (losses[0], min(losses))
    first = looked_at[best][0].numpy()
    np.testing.assert_array_equal(found.bases.residual, matrix_of(len(first)) @ first)


def test_no_step_sees_the_windows_that_judge(monkeypatch):
    steps, judged = [], []
    find = learned_rotation._log_probabilities
    monkeypatch.setattr(
        learned_rotation,
        "_log_probabilities",
        lambda decoder, bases, some: steps.append(some) or find(decoder, bases, some),
    )
    judge = learned_rotation._Judge.__init__
    monkeypatch.setattr(
        learned_rotation._Judge,
        "__init__",
        lambda self, decoder, some, start: judged.append(some) or judge(self, decoder, some, start),
    )
    monkeypatch.setattr(learned_rotation, "STEPS", 4)
    learn_rotation(job_of(), WINDOWS, 0)
    (held,) = judged
    assert held.tolist() == WINDOWS[3:].tolist()
    learned_from = {tuple(row) for some in steps for row in some.tolist()} - {tuple(held[0].tolist())}
    assert learned_from == {tuple(row) for row in WINDOWS[:3].tolist()}


def test_a_single_window_is_refused(tmp_path):
    options = CalibrationWork(text=RANDOM, samples=1, seq_len=24)
    with pytest.raises(InputError, match="got 1 window"), quantized_model(job_of(), options, tmp_path / "work"):
        pass
    assert not (tmp_path / "work").exists()


def test_bases_are_orthogonal_and_differ_from_the_start():
    bases = learned().bases
    for matrix in (bases.residual, *bases.values):
        assert np.abs(matrix @ matrix.T - np.eye(len(matrix))).max() < 1e-12
    assert np.abs(bases.residual - matrix_of(len(bases.residual))).max() > 0.01
    assert np.abs(bases.values[0] - bases.values[1]).max() > 0.001


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_threads():
    torch.set_num_threads(2)
    try:
        again = learn_rotation(job_of(), WINDOWS, 0)
    finally:
        torch.set_num_threads(1)
    assert again.bases.fingerprint() == learned().bases.fingerprint() and again.after == learned().after
    assert learn_rotation(job_of(), WINDOWS, 1).bases.fingerprint() != learned().bases.fingerprint()


def test_the_learned_model_is_the_same_function():
    job = job_of()
    original = job.original
    rotated = RotatedSource(original, job.recipe.online, learned().bases)
    tokens = torch.from_numpy(WINDOWS)
    expected = load_model(original, impl="reference")(tokens)
    assert (load_model(rotated, impl="reference")(tokens) - expected).abs().max() < 1e-4 * expected.std()


def test_rotation_is_learned_on_the_written_model():
    """The decoder's rounding in learned bases against the runtime over turned weights, which are not rounded."""
    job, bases = job_of("spin-rtn-w4a4"), learned().bases
    decoder = RoundedDecoder(job.source, {n: W4A4 for n in job.choices if "_proj" in n}, None)
    start = [matrix_of(len(bases.residual)), *(matrix_of(len(one)) for one in bases.values)]
    pairs = zip((bases.residual, *bases.values), start, strict=True)
    decoder.bases = [torch.from_numpy(first.T @ matrix).float() for matrix, first in pairs]
    rotated = RotatedSource(job.original, job.recipe.online, bases)
    name = "model.layers.1.self_attn.q_proj"
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    turned = x @ decoder.bases[0]
    q = torch.from_numpy(W4A4.fake_quantize_input(turned.numpy(), {}))
    weight = torch.from_numpy(dequantize(rotated.read(f"{name}.weight")))
    assert torch.allclose(decoder.linear(x, name), q @ weight.T, atol=1e-3)


def test_inputs_are_rounded_as_the_format_does():
    x = torch.randn(5, 64, requires_grad=True)
    rounded = round_inputs(x, W4A4)
    assert np.allclose(rounded.detach().numpy(), W4A4.fake_quantize_input(x.detach().numpy(), {}), atol=1e-6)
    rounded.sum().backward()
    others = x.detach().abs() < x.detach().abs().amax(-1, keepdim=True)
    assert (x.grad[others] == 1).all() and (x.grad[~others] != 1).all()


@pytest.mark.parametrize("recipe", ["spin-rtn-w4g128", "spin-q4_k_m", "spin-smoothquant-w8a8-o3"])
def test_recipes_that_round_no_inputs_by_their_values_are_refused(recipe):
    with pytest.raises(InputError, match="learns from rounded inputs"):
        get_recipe(recipe)


def test_the_job_needs_text_and_the_source_remembers_the_bases():
    job = job_of()
    assert job.needs_calibration and job.recipe.learned and job.recipe.rotated
    fixed = RotatedSource(job.original, job.recipe.online)
    assert RotatedSource(job.original, job.recipe.online, learned().bases).fingerprint() != fixed.fingerprint()
    with pytest.raises(InputError, match="needs calibration"):
        QuantizedSource(job)


def test_a_model_is_learned_rounded_and_written(tmp_path):
    options = CalibrationWork(text=RANDOM, samples=4, seq_len=24)
    folders = []
    for run in ("a", "b"):
        recipe = get_recipe("spin-gptq-w4a4+kv-int8")
        job = make_artifact_job(job_of().original, recipe, tmp_path / run)
        with quantized_model(job, options, tmp_path / f"work-{run}") as model:
            folders.append(write_artifact(model))
    one, other = map(HFSource, folders)
    assert one.fingerprint() == other.fingerprint()
    tokens = torch.from_numpy(WINDOWS)
    expected = load_model(job.original, impl="reference")(tokens)
    assert (load_model(one, impl="reference")(tokens) - expected).std() < expected.std()


def test_models_without_reference_equations_are_refused(tmp_path):
    config = small_config("deepseek2")
    job = make_job(ArraySource(config, random_weights(config)), get_recipe("spin-rtn-w8a8"))
    with (
        pytest.raises(InputError, match="use rot-"),
        quantized_model(job, CalibrationWork(text=RANDOM, samples=1, seq_len=8), tmp_path / "work"),
    ):
        pass
    assert not (tmp_path / "work").exists()
