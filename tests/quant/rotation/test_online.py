"""Rotations that run with the model: the same function, in the runtime alone; other programs are not given the file."""

import json

import numpy as np
import pytest
import torch
from support.llama_logits import TOKENS

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.cache import Cache
from qbench.runtime.layers.activations import turned_online
from quant.artifacts import HFSource, make_artifact_job, write_artifact
from quant.errors import InputError
from quant.models import ModelConfig
from quant.models.online import CONFIG_KEY, PLACES
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.rotation import RotatedSource
from quant.rotation.basis import matrix_of
from tests.quant.rotation.test_source import ROTATED, logits_of, same_logits, source_of

LATENT = ("deepseek2", "deepseek3")


@pytest.mark.parametrize("size", [1, 2, 20, 64, 96, 128])
def test_the_turn_is_its_matrix(size):
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, size))).float()
    expected = x.double() @ torch.from_numpy(matrix_of(size))
    assert (turned_online(x) - expected).abs().max() < 2**-24 * size**0.5 * 8 * expected.abs().max()


@pytest.mark.parametrize("kind", ROTATED)
def test_logits_match_the_original(kind):
    source = source_of(kind)
    places = PLACES if ModelConfig.of(source).mla is None else ("down_proj",)
    rotated = RotatedSource(source, places)
    assert rotated.config[CONFIG_KEY] == sorted(places)
    same_logits(source, rotated)


@pytest.mark.parametrize("place", PLACES)
def test_the_runtime_needs_each_of_them(place):
    """Without the key the same weights are another function; queries and keys cancel each other out."""
    source = source_of("llama")
    rotated = RotatedSource(source, [place])
    rotated.config = {**rotated.config, CONFIG_KEY: []}
    error = (logits_of(rotated) - logits_of(source)).abs().max()
    assert error > 0.1 if place == "down_proj" else error < 1e-3


@pytest.mark.parametrize("compute", ["fast", "exact"])
def test_kernels_run_it_with_a_cache_as_without(compute):
    rotated = RotatedSource(source_of("llama"), PLACES)
    expected = logits_of(rotated)
    model = load_model(rotated, RunOptions(compute=compute))
    cache = model.new_cache()
    tokens = torch.tensor([TOKENS])
    parts = [model(tokens[:, :7], cache), *(model(tokens[:, i : i + 1], cache) for i in range(7, tokens.shape[1]))]
    assert (torch.cat(parts, dim=1) - expected).abs().max() < 2**-12 * 8 * expected.std()


def test_keys_are_spread_before_they_are_stored(monkeypatch):
    """The cache gets keys in the rotated basis, and queries in the same one."""
    seen = {}

    def watched(source):
        model = load_model(source, impl="reference")
        cache = model.new_cache()
        attend = cache.attend

        def keep(layer, q, k, v, positions):
            seen.setdefault(layer, (q, k))
            return attend(layer, q, k, v, positions)

        monkeypatch.setattr(cache, "attend", keep)
        monkeypatch.setattr(cache, "rope_attend", Cache.rope_attend.__get__(cache))
        model(torch.tensor([TOKENS]), cache)
        return seen.pop(0)

    source = source_of("llama")
    (q, k), (q2, k2) = watched(RotatedSource(source)), watched(RotatedSource(source, ["keys"]))
    turn = torch.from_numpy(matrix_of(q.shape[-1])).float()
    assert (k2 - k @ turn).abs().max() < 1e-5 * k.abs().max() and (q2 - q @ turn).abs().max() < 1e-5 * q.abs().max()


def test_a_directory_records_its_rotation_and_comes_back(tmp_path):
    job = make_artifact_job(source_of("llama"), get_recipe("rot-rtn-w4a4+kv-int8"), tmp_path / "x")
    assert any("no other program loads" in line for line in job.warnings())
    write_artifact(QuantizedSource(job))
    config = json.loads((tmp_path / "x" / "config.json").read_text())
    assert config[CONFIG_KEY] == sorted(PLACES) and config["quantization_config"]["quant_method"] == "rotated"
    again = HFSource(tmp_path / "x")
    assert torch.equal(logits_of(again), logits_of(QuantizedSource(job)))
    for name in ("rot-rtn-w4a4", "rot-q8_0"):
        with pytest.raises(InputError, match="is rotated already"):
            make_artifact_job(again, get_recipe(name), None)
    with pytest.raises(InputError, match="down_proj and keys while it runs, which a GGUF file cannot say"):
        make_artifact_job(again, get_recipe("q8_0"), tmp_path / "y.gguf")


def test_floats_with_a_rotation_are_no_plain_directory(tmp_path):
    from quant.artifacts import copy_artifact

    copy_artifact(RotatedSource(source_of("llama"), PLACES), tmp_path / "x")
    config = json.loads((tmp_path / "x" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "rotated"
    same_logits(RotatedSource(source_of("llama")), HFSource(tmp_path / "x"))


@pytest.mark.parametrize(
    "recipe, online",
    [
        ("rot-rtn-w8a8+kv-int4", ()),
        ("rtn-w4a4+kv-int4", ()),
        ("rot-gptq-w4a4", ("down_proj",)),
        ("rot-gptq-w4a4+kv-int4", ("down_proj", "keys")),
    ],
)
def test_four_bit_inputs_need_them(recipe, online):
    assert get_recipe(recipe).online == online


@pytest.mark.parametrize("kind", LATENT)
def test_latents_have_no_keys_to_rotate(kind):
    with pytest.raises(InputError, match="keeps one latent for all heads"):
        make_artifact_job(source_of(kind), get_recipe("rot-rtn-w4a4+kv-fp8"), None)


@pytest.mark.parametrize("policy", ["sinks:4+12", "expected-attention:budget=16", "infllm:init=16,local=32"])
def test_policies_that_rotate_keys_themselves_are_refused(policy):
    rotated = RotatedSource(source_of("llama"), PLACES)
    with pytest.raises(InputError, match="rotated online"):
        load_model(rotated, RunOptions(policy=policy)).new_cache()


def test_places_that_are_not_known():
    config = {**source_of("llama").config, CONFIG_KEY: ["values"]}
    with pytest.raises(InputError, match="expected a list of down_proj, keys"):
        ModelConfig.from_hf(config)
