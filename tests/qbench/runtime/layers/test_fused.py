"""Fused products equal those of each weight alone, and a step in one call equals its chain."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import WRITTEN, random_qtensor, random_x

from qbench.runtime.layers.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.layers.fused import FusedLinears, concat_rows
from qbench.runtime.layers.linear import choose_linear
from qbench.runtime.layers.norm import KernelRMSNorm, RMSNorm
from quant.extension import has_cpu_kernels
from quant.formats import dequantize

needs_cpu_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")

FORMATS = {
    "one format": ("bf16", "bf16", "bf16"),
    "packed alike": ("q4_0", "q4_0", "q8_0"),
    "packed as another": ("mxfp4a16", "mxfp4a16", "mxfp4a16"),
    "torch": ("f32", "bf16", "f32"),
    "packed and not": ("q8_0", "w8a8", "q8_0"),
}


@pytest.mark.parametrize("format_name", WRITTEN)
def test_concat_rows_is_concatenation(format_name):
    qtensors = [random_qtensor(format_name, num_rows, 256, seed=num_rows) for num_rows in (3, 8, 5)]
    joined = concat_rows(qtensors)
    assert joined.shape == (16, 256)
    assert_close(dequantize(joined), np.concatenate([dequantize(qtensor) for qtensor in qtensors]))


@pytest.mark.parametrize("formats", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_fused_linears_equal_separate_ones(formats, impl):
    qtensors = [random_qtensor(name, 16 + 8 * i, 64, seed=i) for i, name in enumerate(formats)]
    biases = [None, torch.arange(24.0), None]
    fused = FusedLinears(qtensors, biases, impl)
    assert fused.impl_names == [
        choose_linear(name, impl).build(q).name for name, q in zip(formats, qtensors, strict=True)
    ]
    x = random_x(6, 64).view(2, 3, 64)
    for qtensor, bias, got in zip(qtensors, biases, fused(x), strict=True):
        alone = choose_linear(qtensor.format, impl).build(qtensor)(x)
        expected = alone if bias is None else alone + bias
        # the same products, summed in another order; bf16 results round to 8 bits
        assert_close(got, expected, rtol=2**-7 if qtensor.format == "bf16" else 0, atol=64 * 2**-20)


@needs_cpu_kernels
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64)], ids=str)
def test_steps_in_one_call_are_the_chain(shape):
    """A product of packed weights takes norm and residual along; it is a chain of calls with another among them."""
    norm = KernelRMSNorm(random_x(1, 64)[0], 1e-5)
    x, residual = random_x(5 if len(shape) == 2 else 6, 64).view(shape), torch.ones(*shape[:-1], 24)
    weight = random_qtensor("q8_0", 24, 64)
    linears = FusedLinears([weight], [None])
    assert linears.group is not None
    alone = choose_linear("q8_0").build(weight)(norm(x))
    (y,) = linears(x, norm, residual)
    assert y.shape == residual.shape
    assert_close(y, alone + residual)
    assert_close(residual, torch.ones_like(residual))


def test_a_chain_takes_norm_and_residual_along():
    norm, weight = RMSNorm(torch.linspace(1, 2, 64), 1e-5), random_qtensor("f32", 24, 64)
    x, residual = random_x(6, 64), torch.ones(6, 24)
    linears = FusedLinears([weight], [None], "reference")
    assert linears.group is None
    (y,) = linears(x, norm, residual)
    assert_close(y, choose_linear("f32", "reference").build(weight)(norm(x)) + residual)


@needs_cpu_kernels
@pytest.mark.parametrize("num_tokens", [1, 6])
def test_a_feed_forward_net_in_one_call_is_its_chain(num_tokens):
    gate_up = FusedLinears([random_qtensor("q8_0", 96, 64, seed=seed) for seed in (0, 1)], [None, None])
    down = FusedLinears([random_qtensor("q8_0", 64, 96, seed=2)], [None])
    chain = KernelFeedForward(gate_up, down)
    one_call = chain.step
    assert one_call is not None
    norm, x = KernelRMSNorm(random_x(1, 64)[0], 1e-5), random_x(num_tokens, 64)
    assert_close(one_call(x), chain(x))
    y = one_call(x, norm, x)
    assert_close(y, chain(x, norm, x))
    # 8-bit roundings of the inner values may fall to the other side: one step of 1 / 127 of a block's largest
    inner = FeedForward(gate_up, down).inner(x, norm)
    weight = torch.from_numpy(dequantize(random_qtensor("q8_0", 64, 96, seed=2)))
    step = inner.abs().unflatten(1, (3, 32)).amax(2, keepdim=True).expand(-1, -1, 32).flatten(1) / 127
    bound = (step @ weight.abs().T).max().item()
    assert_close(FeedForward(gate_up, down)(x, norm, x), y, atol=bound)
