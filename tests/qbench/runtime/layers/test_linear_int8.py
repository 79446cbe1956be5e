"""W8A8 and LLM.int8() linears against their formats' NumPy definition, and gpu_kernels' codes."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import random_qtensor, random_x

from gpu_kernels.fused.quantize_per_token import quantize_per_token_ref
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.linear import choose_linear
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.formats import dequantize, get_format
from quant.formats.fp4_linear import to_blocks
from quant.formats.fp8 import FP8_FORMATS
from quant.formats.int8 import INT8_FORMATS
from quant.qtensor import QTensor

INT8_NAMES = [fmt.name for fmt in INT8_FORMATS]
FP8_NAMES = [name for name, fmt in FP8_FORMATS.items() if fmt.inputs != "none"]


def make_qtensor(format_name: str, num_rows: int = 24, row_size: int = 256, seed: int = 0) -> QTensor:
    qtensor = random_qtensor(format_name, num_rows, row_size, seed)
    fmt = get_format(format_name)
    return qtensor if format_name in ("llm-int8", "mxfp4a16") else fmt.with_input_absmax(qtensor, 2.5)


def make_x(num_tokens: int, row_size: int = 256, *features: int) -> torch.Tensor:
    """Random activations; the named features are 20 times larger in one token."""
    x = random_x(num_tokens, row_size)
    x[num_tokens // 2, list(features)] *= 20
    return x


def assert_is_the_definition(linear, qtensor: QTensor, x: torch.Tensor) -> None:
    seen = get_format(qtensor.format).fake_quantize_input(x.numpy(), qtensor.shared)
    weight = dequantize(qtensor)
    expected = seen.astype(np.float64) @ weight.astype(np.float64).T
    absolute_sum = np.abs(seen).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    # Roundings of float32: each fake-quantized value, each sum of them, and bitsandbytes' constant of 7 digits.
    assert_close(linear(x), expected, atol=x.shape[1] * 2**-24 * absolute_sum + 5e-7 * np.abs(expected))


@pytest.mark.parametrize("num_tokens", [1, 7, 40])
@pytest.mark.parametrize("name", [*INT8_NAMES, *FP8_NAMES])
def test_w8a8_is_its_definition(name, num_tokens):
    qtensor = make_qtensor(name)
    assert_is_the_definition(choose_linear(name).build(qtensor), qtensor, make_x(num_tokens, 256, 3, 77))


@pytest.mark.skipif(not has_cpu_kernels(), reason="the extension is not built")
def test_mxfp4_of_a_directory_runs_in_the_kernel_of_blocks():
    qtensor, x = make_qtensor("mxfp4a16"), make_x(7)
    linear, blocks = choose_linear("mxfp4a16").build(qtensor), choose_linear("mxfp4").build(to_blocks(qtensor))
    assert linear.name == blocks.name and linear.name.startswith("cpu-mxfp4[")
    assert torch.equal(linear(x), blocks(x))
    held = choose_linear("mxfp4a16").held_bytes("mxfp4a16", qtensor.shape, qtensor.size_bytes)
    assert held == linear.size_bytes


def test_weights_of_8_bits_alone_meet_inputs_in_bfloat16():
    qtensor, x = make_qtensor("fp8-w8a16"), make_x(7)
    linear = choose_linear("fp8-w8a16").build(qtensor)
    assert linear.name.startswith("cpu-fp8-w8a16[bf16 of codes, ") == has_cpu_kernels()
    if has_cpu_kernels():
        assert_is_the_definition(linear, qtensor, x.bfloat16().float())
        np.testing.assert_array_equal(linear(x), linear(x.bfloat16().float()))
        np.testing.assert_array_equal(linear.rows(np.array([3, 1])), dequantize(qtensor)[[3, 1]])


@pytest.mark.parametrize("features", [(), (3, 77), tuple(range(256))], ids=["no outliers", "two", "all outliers"])
@pytest.mark.parametrize("num_tokens", [1, 7, 40])
def test_llm_int8_is_its_definition(num_tokens, features):
    qtensor = make_qtensor("llm-int8")
    assert_is_the_definition(choose_linear("llm-int8").build(qtensor), qtensor, make_x(num_tokens, 256, *features))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("num_tokens", [1, 7])
def test_known_outlier_features_have_float16_weights(num_tokens, impl):
    """77 and 200 are known, and only 77 is an outlier in this call; so is 3, which is not known."""
    weight = (np.random.default_rng(0).standard_normal((24, 256)) / 16).astype(np.float32)
    weight[:, [3, 77, 200]] /= 1000  # beneath the int8 step of their rows
    fmt = get_format("llm-int8")
    qtensor = fmt.with_outliers(fmt.quantize(weight), weight, np.array([77, 200]))
    linear, x = choose_linear("llm-int8", impl).build(qtensor), make_x(num_tokens, 256, 3, 77)
    assert_is_the_definition(linear, qtensor, x)
    rows = linear.rows(np.array([5, 0]))
    assert_close(rows[:, [77, 200]], weight[[5, 0]][:, [77, 200]], rtol=2**-11, atol=2**-24)
    only_known = torch.zeros(1, 256)
    only_known[0, [77, 200]] = torch.tensor([900.0, 0.5])
    assert_close(
        linear(only_known), only_known.double() @ torch.from_numpy(weight).double().T, rtol=2**-10, atol=2**-12
    )


@pytest.mark.parametrize("name", [*INT8_NAMES, "llm-int8"])
def test_the_table_chooses_it(name):
    chosen = choose_linear(name).build(make_qtensor(name)).name
    assert chosen.startswith(f"cpu-{name}[") if has_cpu_kernels() else chosen == "reference"
    assert choose_linear(name, "reference").build(make_qtensor(name)).name == "reference"


@pytest.mark.parametrize("name", [*INT8_NAMES, "llm-int8"])
def test_batch_and_sequence_are_tokens(name):
    linear, x = choose_linear(name).build(make_qtensor(name)), make_x(6, 256, 9)
    assert_close(linear(x.view(2, 3, 256)), linear(x).view(2, 3, 24))


@pytest.mark.parametrize("name", ["w8a8", "w8a8-wtensor"])
def test_per_token_codes_match_the_gpu(name):
    x = make_x(5, 256, 3)
    q, scale = quantize_per_token_ref(x)
    assert_close(get_format(name).fake_quantize_input(x.numpy(), {}), q.float() * scale[:, None])


@pytest.mark.parametrize("name", ["w8a8-wtensor", "w8a8-astatic", "llm-int8"])
def test_fused_weights_equal_separate_ones(name):
    qtensors = [make_qtensor(name, num_rows, seed=num_rows) for num_rows in (8, 5)]
    fused, x = FusedLinears(qtensors, [None, None]), make_x(4, 256, 3)
    assert len(fused.linears) == 1 or fused.group is not None
    for qtensor, y in zip(qtensors, fused(x), strict=True):
        assert_close(y, choose_linear(name).build(qtensor)(x))


def test_static_scale_clips():
    qtensor, x = make_qtensor("w8a8-astatic"), random_x(3, 256).clamp_(-2.5, 2.5)
    far = x.clone()
    x[1, 4], far[1, 4] = 2.5, 1e6
    linear = choose_linear("w8a8-astatic").build(qtensor)
    assert_close(linear(far), linear(x))


@pytest.mark.parametrize("name", [*INT8_NAMES, "llm-int8"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_nan_stays_in_sight(name, impl):
    x = random_x(3, 256)
    x[1, 5] = torch.nan
    y = choose_linear(name, impl).build(make_qtensor(name))(x)
    assert y[1].isnan().all()
    whole_call = "-atensor" in name
    assert y[[0, 2]].isnan().all() if whole_call else y[[0, 2]].isfinite().all()


@pytest.mark.parametrize("name", [*INT8_NAMES, "llm-int8"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_zeros_give_zeros(name, impl):
    y = choose_linear(name, impl).build(make_qtensor(name))(torch.zeros(3, 256))
    assert_close(y, torch.zeros(3, 24))


def test_static_needs_its_scale():
    qtensor = random_qtensor("w8a8-astatic", 4, 64)
    with pytest.raises(InputError, match="w8a8-astatic needs an input_scale"):
        choose_linear("w8a8-astatic").build(qtensor)
