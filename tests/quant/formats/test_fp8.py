"""8-bit floats: bytes against torch, scales and codes against compressed-tensors' rules, and the four granularities."""

import numpy as np
import pytest
import torch
from support.weights import KINDS, make_weight

from quant.errors import InputError
from quant.formats import get_format
from quant.formats.fp8 import BLOCK, FP8_FORMATS
from quant.formats.small_floats import E4M3_VALUES, round_to_e4m3, to_e4m3

NAMES = list(FP8_FORMATS)
LARGEST = 448.0


def test_values_match_torch():
    bytes_ = torch.arange(256, dtype=torch.uint8)
    np.testing.assert_array_equal(E4M3_VALUES, bytes_.view(torch.float8_e4m3fn).float().numpy())


def test_rounding_is_that_of_torch():
    """Every value, every middle between two, the float32 next to each, and random ones; torch does not saturate."""
    values = np.unique(E4M3_VALUES[np.isfinite(E4M3_VALUES)])
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, np.array([0.0, -0.0, np.nan])]).astype(np.float32)
    around = [np.nextafter(points, np.float32(towards)) for towards in (-1e9, 1e9)]
    rng = np.random.default_rng(0)
    sample = (rng.standard_normal(20_000) * 10.0 ** rng.uniform(-5, 2, 20_000)).astype(np.float32)
    x = np.concatenate([points, *around, sample])
    x = x[~(np.abs(x) > LARGEST)]
    expected = torch.from_numpy(x).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(to_e4m3(x)[is_number], expected[is_number])
    np.testing.assert_array_equal(round_to_e4m3(np.float32([500, -1e9, np.inf, -np.inf])), [448, -448, 448, -448])
    assert np.isnan(round_to_e4m3(np.float32([np.nan, -np.nan]))).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_error_is_at_most_half_a_step(name, kind):
    """Half a step is 2**-4 of a normal value, and 2**-10 scales below."""
    weight, fmt = make_weight(kind), get_format(name)
    qtensor = fmt.quantize(weight)
    scale = fmt._spread(qtensor.parts["weight_scale"])
    assert (
        np.abs(fmt.dequantize(qtensor) - weight) <= 2.0**-4 * np.abs(weight) * (1 + 2.0**-20) + 2.0**-10 * scale
    ).all()
    assert np.nanmax(np.abs(E4M3_VALUES[qtensor.parts["weight"]])) in (LARGEST, 0)
    assert qtensor.size_bytes == fmt.size_bytes(weight.shape)


def test_a_block_has_one_scale():
    fmt = get_format("fp8-block128")
    weight = np.random.default_rng(1).standard_normal((300, 512)).astype(np.float32)
    scale = fmt.quantize(weight).parts["weight_scale"]
    for rows in range(0, 300, BLOCK):
        for block in range(512 // BLOCK):
            part = weight[rows : rows + BLOCK, block * BLOCK : (block + 1) * BLOCK]
            np.testing.assert_array_equal(scale[rows : rows + BLOCK, block], np.abs(part).max() / np.float32(LARGEST))


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_rounded_as_compressed_tensors_rounds_them(name):
    args = pytest.importorskip("compressed_tensors.quantization")
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    from quant.artifacts.layouts.fp8s import Fp8s

    fmt = get_format(name)
    x = np.random.default_rng(2).standard_normal((5, 256)).astype(np.float32)
    wanted = Fp8s.scheme(fmt)["input_activations"]
    if wanted is None:
        assert fmt.fake_quantize_input(x, {}) is x
        return
    shared = fmt.with_input_absmax(fmt.quantize(make_weight("gauss")), 2.0).shared
    theirs, values = args.QuantizationArgs(**wanted), torch.from_numpy(x)[None]  # [B, T, K]
    if wanted["dynamic"]:
        scale, zero_point = compute_dynamic_scales_and_zp(values, theirs, torch.nn.Module())
    else:
        scale, zero_point = torch.from_numpy(shared["input_scale"]), torch.zeros(1)
    expected = fake_quantize(values, scale, zero_point, theirs)
    np.testing.assert_array_equal(fmt.fake_quantize_input(x, shared), expected[0].numpy())


def test_bad_weights_are_refused():
    with pytest.raises(InputError, match="fp8-block128 needs rows of a multiple of 128 weights, got 100"):
        get_format("fp8-block128").quantize(np.zeros((2, 100), np.float32))
    with pytest.raises(InputError, match="fp8-w8a8 holds finite weights"):
        get_format("fp8-w8a8").quantize(np.full((2, 100), np.nan, np.float32))
    with pytest.raises(InputError, match="needs an input_scale, got none; use a method that calibrates: static"):
        get_format("fp8-w8a8-static").fake_quantize_input(np.ones((1, 100), np.float32), {})
    with pytest.raises(InputError, match="fp8-block128 cannot be cut by input features"):
        get_format("fp8-block128").add_zero_column(get_format("fp8-block128").quantize(np.ones((2, 128), np.float32)))
