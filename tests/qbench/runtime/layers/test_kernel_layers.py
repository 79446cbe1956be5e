"""A dense model whose layers are one call against the same model block by block, and in single calls."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.runtime import Model, load_model
from quant.extension import has_cpu_kernels

pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def model_of(architecture: str, format_name: str = "q8_0", path: str = "auto", **changes) -> Model:
    config = small_config(architecture, **changes)
    weights = random_weights(config)
    formats = {name: format_name for name, weight in weights.items() if weight.ndim == 2}
    return load_model(ArraySource(config, weights, formats), path=path)


def logits(model: Model, batch: int) -> torch.Tensor:
    """Logits of a prompt, a few tokens and single ones after it."""
    cache = model.new_cache(batch=batch, capacity=5)  # it grows
    tokens = torch.randint(150, (batch, 23), generator=torch.Generator().manual_seed(0))
    parts = [model(part, cache) for part in tokens.split((17, 4, 1, 1), dim=1)]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("batch", [1, 2], ids="B={}".format)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("format_name", ["q8_0", "bf16"])
def test_one_call_is_block_after_block(architecture, format_name, batch):
    one_call, steps, python = (
        model_of(architecture, format_name, path, head_dim=32) for path in ("layers", "steps", "python")
    )
    assert one_call.new_cache().has_kernel_view(1)
    assert all(block.attention.step and block.feed_forward.step for block in steps.blocks)
    expected = logits(one_call, batch)
    assert_close(logits(steps, batch), expected)
    assert_close(logits(python, batch), expected)


@pytest.mark.parametrize("format_name", ["q8_0", "w8a8-atensor"])
@pytest.mark.parametrize("batch", [1, 2], ids="B={}".format)
def test_only_the_last_token_can_be_wanted(batch, format_name):
    """The last layer's net reads fewer tokens, unless all of them share the scale of its input.

    Its sums then have another order, and a value that is rounded to 8 bits for the head may fall to the other side: a
    step of 1 / 254 of the largest.
    """
    tokens = torch.randint(150, (batch, 23), generator=torch.Generator().manual_seed(0))
    models = (model_of("llama", format_name, path) for path in ("layers", "steps"))
    alone, expected = (model(tokens, model.new_cache(batch=batch), last_only=True) for model in models)
    assert alone.shape == expected.shape == (batch, 1, 160)
    assert_close(alone, expected, atol=0 if format_name == "w8a8-atensor" else expected.abs().max().item() / 254)


@pytest.mark.parametrize("architecture", ["qwen3moe", "deepseek2"])
def test_other_layers_stay_blocks(architecture):
    model = model_of(architecture, "f32")
    assert not {"layers", "latent-layers"} & set(model.paths.names)
    assert torch.isfinite(logits(model, 1)).all()


def test_the_reference_stays_plain():
    config = small_config()
    model = load_model(ArraySource(config, random_weights(config)), impl="reference")
    assert model.paths.names == ["python"]
