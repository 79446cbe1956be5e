"""`compute`: the precision of the matmuls that a user asks for, and the inputs of a token's logits."""

import importlib

import numpy as np
import pytest
import torch
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv.source import KVSource
from quant.models import ModelConfig

TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 160, (1, 131)))
# Parts of one token, of few, and of as many as take another path by default: from 8 for f16, from 64 for K-quants.
PARTS = (1, 1, 3, 9, 17, 31, 69)

needs_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def model_of(kind: str, format_name: str, impl: str = "auto", **how) -> Model:
    changes = {"hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256, "head_dim": 64}
    config = small_config(kind, **changes)
    weights = random_weights(config)
    formats = {name: format_name for name, weight in weights.items() if weight.ndim == 2}
    return load_model(ArraySource(config, weights, formats), RunOptions(**how), impl=impl)


def in_parts(model: Model) -> torch.Tensor:
    cache = model.new_cache(capacity=len(TOKENS[0]))
    return torch.cat([model(part, cache) for part in TOKENS.split(PARTS, dim=1)], dim=1)


@needs_kernels
@pytest.mark.parametrize("kind", ["llama", "qwen3moe"])
@pytest.mark.parametrize("format_name", ["q4_k", "q2_k", "q6_k", "q8_0", "f16", "bf16"])
def test_exact_tokens_do_not_depend_on_their_number(kind, format_name):
    model = model_of(kind, format_name, compute="exact")
    assert not any("int8x256" in name or "bf16 products" in name for name in model.impls.values())
    expected = in_parts(model)
    assert_close(model(TOKENS, model.new_cache(capacity=131)), expected)
    whole = model(TOKENS.repeat(3, 1), model.new_cache(batch=3, capacity=131))
    assert_close(whole, expected.expand(3, -1, -1))


@needs_kernels
@pytest.mark.parametrize("kv", ["kv-f16", "kv-bf16", "kv-fp8", "kv-fp8-e5m2", "kv-int8"])
@pytest.mark.parametrize(
    "options", [{}, {"cache": "paged"}, {"policy": "window:64"}], ids=["dynamic", "paged", "window"]
)
def test_exact_holds_for_every_format_of_keys_and_values(kv, options):
    """Tiles of AMX round f16 and bf16, and the weights of values, in a prompt only."""
    config = small_config("llama", head_dim=64)
    source = KVSource(ArraySource(config, random_weights(config)), kv)
    model = load_model(source, RunOptions(compute="exact", **options))
    assert_close(model(TOKENS, model.new_cache(capacity=131)), in_parts(model))


@pytest.mark.skipif("not has_cpu_kernels() or 'amx' not in __import__('cpu_kernels').features()", reason="no AMX")
@pytest.mark.parametrize("kv", ["kv-f16", "kv-bf16", "kv-fp8"])
def test_by_default_tiles_multiply_many_queries(kv):
    config = small_config("llama", head_dim=64)
    model = load_model(KVSource(ArraySource(config, random_weights(config)), kv))
    assert not torch.equal(model(TOKENS, model.new_cache(capacity=131)), in_parts(model))


@needs_kernels
@pytest.mark.parametrize("mode", ["elided", "compressed"])
def test_exact_latents_take_no_tiles(mode, monkeypatch):
    """Without tiles, the variable that keeps f16 out of them changes nothing."""
    config = small_config("deepseek2", kv_lora_rank=64, qk_rope_head_dim=16)
    source = KVSource(ArraySource(config, random_weights(config)), "kv-f16")
    for compute in ("exact", "fast"):
        model = load_model(source, RunOptions(compute=compute))
        monkeypatch.delenv("QBENCH_F16_COMPUTE", raising=False)
        chosen = model(TOKENS, model.new_cache(capacity=131, mode=mode))
        monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")
        without = model(TOKENS, model.new_cache(capacity=131, mode=mode))
        takes_tiles = (mode, compute) == ("elided", "fast") and "amx" in importlib.import_module(
            "cpu_kernels"
        ).features()
        assert torch.equal(chosen, without) != takes_tiles, compute


# Two in every run: soft caps of scores, and heads that the kernels do not read, both in torch.
FAMILIES = [
    pytest.param(kind, marks=[] if kind in ("gemma2", "qwen3") else pytest.mark.exhaustive("two passes of each family"))
    for kind in KINDS
    if ModelConfig.from_hf(small_config(kind)).mla is None
]


@needs_kernels
@pytest.mark.parametrize("kind", FAMILIES)
def test_exact_holds_for_every_family_and_width_of_head(kind):
    """Inputs that are rounded to int8 make a code of a last digit, which random weights then spread."""
    config = small_config(kind)
    weights = random_weights(config)
    formats = {name: "q8_0" for name, weight in weights.items() if weight.ndim == 2 and weight.shape[1] % 32 == 0}
    model = load_model(ArraySource(config, weights, formats), RunOptions(compute="exact"))
    tokens = TOKENS % 128
    whole, cache = model(tokens, model.new_cache(capacity=131)), model.new_cache(capacity=131)
    assert_close(torch.cat([model(part, cache) for part in tokens.split(PARTS, dim=1)], dim=1), whole)
    assert_close(model(tokens.repeat(3, 1), model.new_cache(batch=3, capacity=131)), whole.expand(3, -1, -1))


@needs_kernels
@pytest.mark.parametrize("format_name", ["q4_k", "f16"])
def test_by_default_many_tokens_are_rounded_further(format_name):
    model = model_of("llama", format_name)
    if format_name == "f16" and not any("bf16 products" in name for name in model.impls.values()):
        pytest.skip("this machine has no products of bfloat16")
    if format_name == "q4_k" and any("avx2" in name for name in model.impls.values()):
        pytest.skip("AVX2 multiplies K-quants as they are stored")
    assert not torch.equal(model(TOKENS, model.new_cache(capacity=131)), in_parts(model))


@needs_kernels
def test_the_environment_goes_before(monkeypatch):
    monkeypatch.setenv("QBENCH_K_QUANT_COMPUTE", "int8x256")
    model = model_of("llama", "q4_k", compute="exact")
    assert all("int8x256" in name for name in model.impls.values())


def test_float32_is_the_reference():
    model = model_of("llama", "q4_k", compute="float32")
    assert set(model.impls.values()) == {"reference"}
    assert_close(in_parts(model), in_parts(model_of("llama", "q4_k", impl="reference")))


def test_the_reference_stays_float32_in_every_compute():
    assert set(model_of("llama", "q4_k", impl="reference", compute="exact").impls.values()) == {"reference"}


def test_unknown_compute_lists_the_known():
    with pytest.raises(InputError, match="unknown compute 'exct'; known: fast, exact, float32; did you mean 'exact'"):
        model_of("llama", "q4_k", compute="exct")
