"""A dense model whose layers are one call against the same model block by block, and in single calls."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.runtime import Model, load_model
from qbench.runtime.caches.kernel_cache import KernelCache
from qbench.runtime.layers.linear import has_cpu_kernels

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def model_of(architecture: str, format_name: str = "q8_0", **changes) -> Model:
    config = small_config(architecture, **changes)
    weights = random_weights(config)
    formats = {name: format_name for name, weight in weights.items() if weight.ndim == 2}
    return load_model(ArraySource(config, weights, formats))


def logits(model: Model, batch: int) -> torch.Tensor:
    """Of a prompt, a few tokens and single ones after it."""
    cache = model.new_cache(batch=batch, capacity=5)  # it grows
    tokens = torch.randint(150, (batch, 23), generator=torch.Generator().manual_seed(0))
    parts = [model(part, cache) for part in tokens.split((17, 4, 1, 1), dim=1)]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("batch", [1, 2], ids="B={}".format)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("format_name", ["q8_0", "bf16"])
def test_one_call_is_block_after_block(architecture, format_name, batch):
    model = model_of(architecture, format_name, head_dim=32)
    assert model.one_call is not None and isinstance(model.new_cache(), KernelCache)
    expected = logits(model, batch)
    model.one_call = None
    assert_close(logits(model, batch), expected)
    for block in model.blocks:
        assert block.attention.is_one_call and block.feed_forward.is_one_call
        block.attention.is_one_call = block.feed_forward.is_one_call = False
    assert_close(logits(model, batch), expected)


@pytest.mark.parametrize("format_name", ["q8_0", "w8a8-atensor"])
@pytest.mark.parametrize("batch", [1, 2], ids="B={}".format)
def test_the_last_token_alone(batch, format_name):
    """The last layer's net reads fewer tokens, unless all of them share the scale of its input.

    Its sums then have another order, and what is rounded to 8 bits for the head may fall to the other side: a step of
    1 / 254 of the largest.
    """
    model = model_of("llama", format_name)
    tokens = torch.randint(150, (batch, 23), generator=torch.Generator().manual_seed(0))
    alone = model(tokens, model.new_cache(batch=batch), last_only=True)
    model.one_call = None
    expected = model(tokens, model.new_cache(batch=batch), last_only=True)
    assert alone.shape == expected.shape == (batch, 1, 160)
    assert_close(alone, expected, atol=0 if format_name == "w8a8-atensor" else expected.abs().max().item() / 254)


@pytest.mark.parametrize("architecture", ["qwen3moe", "deepseek2"])
def test_other_layers_stay_blocks(architecture):
    model = model_of(architecture, "f32")
    assert model.one_call is None
    assert torch.isfinite(logits(model, 1)).all()


def test_the_reference_stays_plain():
    config = small_config()
    model = load_model(ArraySource(config, random_weights(config)), impl="reference")
    assert model.one_call is None
