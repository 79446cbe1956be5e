"""The use of each method: on the reference model it beats plain rounding by more than the text's own noise.

Every difference is paired, window by window, and its 95 % interval comes from drawing whole windows.
"""

from functools import cache

import numpy as np
import pytest
import torch
from support.perplexity import stacked

from qbench.calibration.write import open_quantized
from qbench.quality.evaluate import prepare
from qbench.quality.kld.kld import divergence
from qbench.reference.corpus import heldout_text
from qbench.run.work import CalibrationWork
from qbench.runtime import Model, load_model
from qbench.sources import open_source
from qbench.statistics.intervals import token_mean
from quant.job import make_job
from quant.recipes import Recipe, get_recipe
from quant.recipes.yaml_recipe import recipe_from

WINDOWS = 48  # of the text; each test states how many its difference needs
TOGETHER = 4  # windows per forward pass; each number of windows here is a multiple of it
CALIBRATION = CalibrationWork(samples=24)
MANY_WINDOWS = pytest.mark.exhaustive("half a minute; the difference that the fewest windows show is in every run")


def recipe_of(name: str) -> Recipe:
    """A named recipe, or "own:FORMAT" for plain rounding to a format that has no recipe name."""
    own = name.removeprefix("own:")
    return get_recipe(name) if own == name else recipe_from({"container": "hf", "default": own}, name)


@cache
def loaded(model: str, recipe: str | None) -> Model:
    """The model as the recipe makes it; None: as it is stored, by the reference implementation."""
    source = open_source(model)
    if recipe is not None:
        source = open_quantized(make_job(source, recipe_of(recipe)), CALIBRATION, threads=2)
    return load_model(source, impl="reference" if recipe is None else "auto")


@cache
def windows_of(model: str) -> torch.Tensor:
    """[WINDOWS, T] int64 of the held-out text"""
    return torch.from_numpy(stacked(prepare(open_source(model), heldout_text(), WINDOWS)[0]))


@cache
def logits_of(model: str, recipe: str | None, first: int) -> torch.Tensor:
    """[TOGETHER, T - 1, V] float32 over the windows from `first` on"""
    return loaded(model, recipe)(windows_of(model)[first : first + TOGETHER])[:, :-1]


@cache
def kld_from(recipe: str, first: int, model: str) -> np.ndarray:
    """[TOGETHER, T - 1] float64, nats per token"""
    reference, got = logits_of(model, None, first), logits_of(model, recipe, first)
    targets = torch.zeros(reference.shape[:2].numel(), dtype=torch.int64)
    return divergence(got.flatten(0, 1), reference.flatten(0, 1), targets).kld.reshape(len(reference), -1)


def kld_of(recipe: str, num_windows: int, model: str = "ref:llama") -> np.ndarray:
    """[W, T - 1] float64, nats per token"""
    return np.concatenate([kld_from(recipe, first, model) for first in range(0, num_windows, TOGETHER)])


@pytest.mark.parametrize(
    "better, worse, num_windows",
    [
        pytest.param("gptq-w4g128", "rtn-w4g128", 24, marks=MANY_WINDOWS),
        pytest.param("gptq-w3g128", "rtn-w3g128", 16, marks=MANY_WINDOWS),
        pytest.param("awq-w4g128", "own:w4g128-asym", WINDOWS, marks=MANY_WINDOWS),
        ("gptq-q4_k_m", "q4_k_m", 12),
    ],
)
def test_calibration_pays(better, worse, num_windows):
    low, high = kld_of(better, num_windows), kld_of(worse, num_windows)
    assert token_mean(low - high).high < 0, f"{better} {low.mean():.3e}, {worse} {high.mean():.3e}"


@MANY_WINDOWS
def test_act_order_is_not_above_plain():
    difference = token_mean(kld_of("gptq-w4g128-act", 24) - kld_of("gptq-w4g128", 24))
    assert difference.low <= 0, "above plain by more than noise"


@pytest.mark.parametrize("kv", [pytest.param("kv-fp8", marks=MANY_WINDOWS), "kv-int8"])
def test_eight_bit_keys_and_values_cost_little(kv):
    assert kld_of(f"bf16+{kv}", 8).mean() < kld_of("rtn-w4g128", 8).mean() / 10
