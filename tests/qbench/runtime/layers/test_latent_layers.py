"""A model with latent attention whose layers are one call against the same model block by block."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.run.options import RunOptions
from qbench.runtime import Cache, Model, load_model
from qbench.runtime.attention.mla_modes import get_mode
from quant.extension import has_cpu_kernels

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")

SIZES = {"kv_lora_rank": 64, "qk_rope_head_dim": 16}  # that the kernels attend over
SHAPES = {
    "plain queries": ("deepseek2", SIZES),
    "low-rank queries": ("deepseek2", SIZES | {"q_lora_rank": 32}),
    "sigmoids, groups and a bias": ("deepseek3", SIZES | {"q_lora_rank": 64}),
}
TOKENS = torch.randint(150, (3, 23), generator=torch.Generator().manual_seed(0))


def model_of(shape: str, format_name: str = "q8_0", impl: str = "auto", path: str = "auto", **loading) -> Model:
    name, changes = SHAPES[shape]
    config = small_config(name, **changes)
    weights = random_weights(config)
    formats = {name: format_name for name, weight in weights.items() if weight.ndim == 2}
    return load_model(ArraySource(config, weights, formats), RunOptions(**loading), impl=impl, path=path)


def logits(model: Model, batch: int, last_only: bool = False, mode: str = "elided") -> torch.Tensor:
    """Logits of a prompt, a few tokens and single ones after it."""
    cache = model.new_cache(batch=batch, capacity=5, mode=mode)  # it grows
    parts = [model(part, cache, last_only=last_only) for part in TOKENS[:batch].split((17, 4, 1, 1), dim=1)]
    return torch.cat(parts, dim=1)


def path_of(model: Model, cache: Cache, num_tokens: int) -> str:
    return model.paths.choose(cache, num_tokens)[0].name


def varlen_logits(model: Model, last_only: bool = False) -> torch.Tensor:
    cache = model.new_cache(batch=3, mode="elided")
    return torch.cat([model(TOKENS[:, :4], cache, last_only=last_only, num_valid=n) for n in ([4, 1, 2], [1, 1, 3])], 1)


@pytest.mark.parametrize("last_only", [False, True], ids=["all", "last"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format_name", ["q8_0", "f32"])
def test_one_call_is_block_after_block(shape, format_name, last_only):
    model = model_of(shape, format_name, path="latent-layers")
    got = [logits(model, 1, last_only), logits(model, 2, last_only), varlen_logits(model, last_only)]
    model = model_of(shape, format_name, path="net-steps")
    expected = [logits(model, 1, last_only), logits(model, 2, last_only), varlen_logits(model, last_only)]
    for one, other in zip(got, expected, strict=True):
        real = ~other.isnan()
        assert torch.equal(real, ~one.isnan()) and real.any()
        assert_close(one[real], other[real])


@pytest.mark.parametrize("mode", ["compressed", "decompressed", "absorbed"])
def test_other_plans_run_block_by_block(mode):
    model = model_of("plain queries")
    assert path_of(model, model.new_cache(mode=mode), 1) == "net-steps"
    expected = logits(model, 1, mode=mode)
    assert_close(logits(model_of("plain queries", path="net-steps"), 1, mode=mode), expected)


def test_inputs_for_another_plan_run_block_by_block(monkeypatch):
    mode = {1: get_mode("elided"), 10_000: get_mode("compressed")}
    monkeypatch.setattr(
        "qbench.runtime.layers.latent_kernel.choose_mode", lambda s, heads, held, new, window: mode[new]
    )
    model = model_of("plain queries")
    cache = model.new_cache()
    assert path_of(model, cache, 1) == "latent-layers"
    assert path_of(model, cache, 10_000) == "net-steps"


@pytest.mark.parametrize("format_name, impl", [("llm-int8", "auto"), ("q8_0", "reference")])
def test_unpacked_layers_stay_blocks(format_name, impl):
    assert "latent-layers" not in model_of("plain queries", format_name, impl=impl).paths.names
