"""Each implementation against float64 on the dequantized weights; the table."""

import sys

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import WRITTEN, random_qtensor, random_x

from qbench.runtime.layers.linear import REFERENCE, choose_linear
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.formats import ActivationFormat, IntGroupFormat, dequantize, get_format
from quant.formats.grid import GridFormat
from quant.formats.levels import CodebookFormat
from quant.qtensor import QTensor

needs_cpu_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


# Formats that cpu_kernels multiplies with activations rounded to 8 bits in blocks of 32.
BLOCKS = GridFormat | CodebookFormat | IntGroupFormat
# Formats that round inputs themselves are multiplied exactly.
PACKED = [
    name
    for name in WRITTEN
    if isinstance(get_format(name), BLOCKS) and not isinstance(get_format(name), ActivationFormat)
]


def exact(qtensor: QTensor, x: torch.Tensor) -> torch.Tensor:
    fmt = get_format(qtensor.format)
    if isinstance(fmt, ActivationFormat):
        x = torch.from_numpy(fmt.fake_quantize_input(x.numpy(), qtensor.shared))
    return x.double() @ torch.from_numpy(dequantize(qtensor)).double().T


@pytest.mark.parametrize("format_name", WRITTEN)
def test_reference_is_the_dequantized_product(format_name):
    qtensor, x = random_qtensor(format_name, 24, 256), random_x(5, 256)
    linear = choose_linear(format_name, impl="reference").build(qtensor)
    assert linear.name == "reference"
    absolute_sum = x.abs().double() @ torch.from_numpy(dequantize(qtensor)).double().abs().T
    assert_close(linear(x), exact(qtensor, x), atol=(256 * 2**-24 * absolute_sum).numpy())


@pytest.mark.parametrize("format_name", ["f32", "q4_k", "w4g128", "bf16"])
def test_rounded_is_the_product_of_bf16_roundings(format_name):
    qtensor, x = random_qtensor(format_name, 24, 256), random_x(5, 256)
    linear = choose_linear(format_name, impl="bf16").build(qtensor)
    assert linear.name == "torch-bf16-rounded"
    weight = torch.from_numpy(dequantize(qtensor)).bfloat16().double()
    assert torch.equal(linear.rows(np.array([3, 0])), weight[[3, 0]].float())
    rounded = x.bfloat16().double()
    bound = 256 * 2**-24 * rounded.abs() @ weight.abs().T
    assert_close(linear(x), rounded @ weight.T, rtol=2**-8, atol=bound.numpy())


def test_formats_that_round_their_inputs_are_not_rounded_twice():
    assert choose_linear("w8a8", impl="bf16") is choose_linear("w8a8")


@needs_cpu_kernels
@pytest.mark.parametrize("num_tokens", [1, 7])
@pytest.mark.parametrize("format_name", ["bf16", "f16", "f32"])
def test_float_kernels_round_as_documented(format_name, num_tokens):
    qtensor, x = random_qtensor(format_name, 40, 256), random_x(num_tokens, 256)
    linear = choose_linear(format_name).build(qtensor)
    assert linear.name.startswith(f"cpu-{format_name}[")
    seen = x.bfloat16() if format_name == "bf16" else x
    absolute_sum = x.abs().double() @ torch.from_numpy(dequantize(qtensor)).double().abs().T
    assert_close(linear(x), exact(qtensor, seen), atol=(257 * 2**-24 * absolute_sum).numpy())


@needs_cpu_kernels
def test_f16_reports_its_rounding_to_bf16():
    qtensor, x = random_qtensor("f16", 40, 256), random_x(64, 256)
    linear = choose_linear("f16").build(qtensor)
    absolute_sum = x.abs().double() @ torch.from_numpy(dequantize(qtensor)).double().abs().T
    error = ((linear(x).double() - exact(qtensor, x)).abs() / absolute_sum).max()
    rounds = "bf16 products" in linear.name
    # Both sides are off by 2**-9 of themselves at most; else there are sums of float32 alone.
    assert 257 * 2**-24 < error < 2**-7 if rounds else error < 257 * 2**-24


@needs_cpu_kernels
@pytest.mark.parametrize("num_tokens", [1, 7])
@pytest.mark.parametrize("format_name", PACKED)
def test_kernel_is_within_its_activation_rounding(format_name, num_tokens):
    """x is rounded to absmax / 127 per block of 32: at most half of one step off, weighted by |weight|."""
    qtensor, x = random_qtensor(format_name, 40, 256), random_x(num_tokens, 256)
    linear = choose_linear(format_name).build(qtensor)
    assert linear.name.startswith(f"cpu-{format_name}[")
    half_step = x.unflatten(-1, (-1, 32)).abs().amax(-1).double() / 127 / 2  # [M, K/32]
    weight = torch.from_numpy(dequantize(qtensor)).double().abs()
    bound = half_step.repeat_interleave(32, -1) @ weight.T * (1 + 2**-8)
    error = linear(x).double() - exact(qtensor, x)
    assert_close(error, torch.zeros_like(error), atol=bound.numpy())
    assert error.abs().max() > 256 * 2**-24, "activations were not rounded: this is not the kernel"


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("format_name", WRITTEN)
def test_rows_are_the_dequantized_weight(format_name, impl):
    """Exactly: a tied embedding looks the same whichever implementation holds it."""
    qtensor = random_qtensor(format_name, 19, 256)
    index = np.array([18, 0, 7, 7])
    rows = choose_linear(format_name, impl).build(qtensor).rows(index)
    assert rows.dtype == torch.float32
    assert_close(rows, dequantize(qtensor)[index])


@pytest.mark.parametrize("format_name", WRITTEN)
def test_held_bytes_match_the_weights(format_name):
    qtensor = random_qtensor(format_name, 19, 256)
    row = choose_linear(format_name)
    assert row.held_bytes(format_name, qtensor.shape, qtensor.size_bytes) == row.build(qtensor).size_bytes


@pytest.mark.parametrize("name", ["q8_0", "bf16", "w8a8", "llm-int8"])
def test_without_the_extension_all_is_named_the_reference(monkeypatch, name):
    monkeypatch.delitem(sys.modules, "cpu_kernels")
    monkeypatch.setitem(sys.modules, "cpu_kernels._ext", None)  # as if it could not be found
    assert choose_linear(name).build(random_qtensor(name, 2, 32)).name == "reference"


def test_formats_without_a_kernel_are_named_the_reference():
    qtensor = random_qtensor("w4g32", 8, 64)
    g_idx = np.array([0] * 40 + [1] * 24, np.int32)
    uneven = QTensor(qtensor.format, qtensor.shape, qtensor.parts, {"g_idx": g_idx})
    assert choose_linear("w4g32").build(qtensor).name.startswith("cpu-w4g32[")
    assert choose_linear("w4g32").build(uneven).name == "reference"


def test_another_device_gets_no_cpu_kernel():
    assert choose_linear("bf16", device="cuda") is REFERENCE


def test_unknown_impl():
    with pytest.raises(InputError, match="known: auto, exact, reference"):
        choose_linear("f32", impl="best")
