"""Each implementation against float64 on the dequantized weights; the table; fusion."""

import numpy as np
import pytest
import torch
from support.close import assert_close

from qbench.runtime import linear as linear_module
from qbench.runtime.linear import FusedLinears, choose_linear, concat_rows, has_cpu_kernels
from quant.errors import InputError
from quant.formats import FORMATS, dequantize, get_format
from quant.qtensor import QTensor

needs_cpu_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def random_qtensor(format_name: str, num_rows: int, row_size: int, seed: int = 0) -> QTensor:
    weight = np.random.default_rng(seed).standard_normal((num_rows, row_size)) / np.sqrt(row_size)
    return get_format(format_name).quantize_ref(weight.astype(np.float32))


def random_x(num_tokens: int, row_size: int) -> torch.Tensor:
    return torch.randn(num_tokens, row_size, generator=torch.Generator().manual_seed(2))


def exact(qtensor: QTensor, x: torch.Tensor) -> torch.Tensor:
    return x.double() @ torch.from_numpy(dequantize(qtensor)).double().T


@pytest.mark.parametrize("format_name", list(FORMATS))
def test_reference_is_the_dequantized_product(format_name):
    qtensor, x = random_qtensor(format_name, 24, 256), random_x(5, 256)
    linear = choose_linear(format_name, impl="reference").build(qtensor)
    assert linear.name == "reference"
    absolute_sum = x.abs().double() @ torch.from_numpy(dequantize(qtensor)).double().abs().T
    assert_close(linear(x), exact(qtensor, x), atol=(256 * 2**-24 * absolute_sum).numpy())


def test_bf16_rounds_activations_and_result():
    qtensor, x = random_qtensor("bf16", 24, 64), random_x(5, 64)
    linear = choose_linear("bf16").build(qtensor)
    assert linear.name == "torch-bf16"
    rounded = exact(qtensor, x.bfloat16())
    absolute_sum = x.abs().double() @ torch.from_numpy(dequantize(qtensor)).double().abs().T
    assert_close(linear(x), rounded, rtol=2**-8, atol=(64 * 2**-24 * absolute_sum).numpy())
    assert linear(x).dtype == torch.float32


@needs_cpu_kernels
@pytest.mark.parametrize("num_tokens", [1, 7])
def test_q8_0_kernel_is_within_its_activation_rounding(num_tokens):
    """x is rounded to absmax / 127 a block of 32: at most half a step off, weighted by |weight|."""
    qtensor, x = random_qtensor("q8_0", 40, 256), random_x(num_tokens, 256)
    linear = choose_linear("q8_0").build(qtensor)
    assert linear.name.startswith("cpu-q8_0[")
    half_step = x.unflatten(-1, (-1, 32)).abs().amax(-1).double() / 127 / 2  # [M, K/32]
    weight = torch.from_numpy(dequantize(qtensor)).double().abs()
    bound = half_step.repeat_interleave(32, -1) @ weight.T * (1 + 2**-8)
    error = linear(x).double() - exact(qtensor, x)
    assert_close(error, torch.zeros_like(error), atol=bound.numpy())
    assert error.abs().max() > 256 * 2**-24, "activations were not rounded: this is not the kernel"


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("format_name", list(FORMATS))
def test_rows_are_the_dequantized_weight(format_name, impl):
    """Exactly: a tied embedding looks the same whichever implementation holds it."""
    qtensor = random_qtensor(format_name, 19, 256)
    index = np.array([18, 0, 7, 7])
    rows = choose_linear(format_name, impl).build(qtensor).rows(index)
    assert rows.dtype == torch.float32
    assert_close(rows, dequantize(qtensor)[index])


@pytest.mark.parametrize("format_name", list(FORMATS))
def test_held_bytes_are_what_it_holds(format_name):
    qtensor = random_qtensor(format_name, 19, 256)
    row = choose_linear(format_name)
    assert row.held_bytes(qtensor.shape, qtensor.size_bytes) == row.build(qtensor).size_bytes


def test_without_the_extension_q8_0_is_named_the_reference(monkeypatch):
    row = linear_module.LINEARS[0]
    absent = linear_module.LinearImpl(row.format, row.device, row.build, ready=lambda: False)
    monkeypatch.setattr(linear_module, "LINEARS", (absent, *linear_module.LINEARS[1:]))
    assert choose_linear("q8_0").build(random_qtensor("q8_0", 2, 32)).name == "reference"


def test_another_device_gets_no_cpu_kernel():
    assert choose_linear("bf16", device="cuda") is linear_module.REFERENCE


def test_unknown_impl():
    with pytest.raises(InputError, match="known: auto, reference"):
        choose_linear("f32", impl="best")


@pytest.mark.parametrize("format_name", list(FORMATS))
def test_concat_rows_is_concatenation(format_name):
    qtensors = [random_qtensor(format_name, num_rows, 256, seed=num_rows) for num_rows in (3, 8, 5)]
    joined = concat_rows(qtensors)
    assert joined.shape == (16, 256)
    assert_close(dequantize(joined), np.concatenate([dequantize(qtensor) for qtensor in qtensors]))


@pytest.mark.parametrize(
    "formats, num_products",
    [(("bf16", "bf16", "bf16"), 1), (("q4_0", "q4_0", "q8_0"), 2), (("f32", "bf16", "f32"), 3)],
    ids=["one format", "two of one, one of another", "alternating"],
)
def test_fused_linears_equal_each_alone(formats, num_products):
    qtensors = [random_qtensor(name, 16 + 8 * i, 64, seed=i) for i, name in enumerate(formats)]
    biases = [None, torch.arange(24.0), None]
    fused = FusedLinears(qtensors, biases)
    assert len(fused.groups) == num_products
    x = random_x(6, 64).view(2, 3, 64)
    for qtensor, bias, got in zip(qtensors, biases, fused(x), strict=True):
        alone = choose_linear(qtensor.format).build(qtensor)(x)
        expected = alone if bias is None else alone + bias
        # the same products, summed in another order; bf16 results round to 8 bits
        assert_close(got, expected, rtol=2**-7 if qtensor.format == "bf16" else 0, atol=64 * 2**-20)
