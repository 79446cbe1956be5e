"""W8A8: codes by hand, and the same numbers as compressed-tensors' own quantization."""

import numpy as np
import pytest
import torch

from quant.errors import InputError
from quant.formats import Int8Format, get_format
from quant.formats.int8 import INT8_FORMATS

NAMES = [fmt.name for fmt in INT8_FORMATS]


def make_weight(num_rows: int, row_size: int) -> np.ndarray:
    return (0.02 * np.random.default_rng(9).standard_t(4, (num_rows, row_size))).astype(np.float32)


def test_names_are_a_grammar():
    combinations = [f"w8a8{weight}{inputs}" for weight in ("", "-wtensor") for inputs in ("", "-atensor", "-astatic")]
    assert NAMES == combinations
    assert all(Int8Format.parse(name).name == name for name in NAMES)
    assert Int8Format.parse("w8a8-astatic-wtensor") is None and Int8Format.parse("w8") is None


@pytest.mark.parametrize(
    "name, q, scales",
    [
        ("w8a8", [[127, -64, 0], [-32, 127, 64]], [2 / 127, 4 / 127]),
        ("w8a8-wtensor", [[64, -32, 0], [-32, 127, 64]], [4 / 127, 4 / 127]),
    ],
)
def test_codes_by_hand(name, q, scales):
    qtensor = get_format(name).quantize(np.array([[2, -1.01, 0], [-1, 4, 2.03]], dtype=np.float32))
    assert qtensor.parts["weight"].tolist() == q
    np.testing.assert_array_equal(qtensor.parts["weight_scale"], np.array(scales, dtype=np.float32)[:, None])


@pytest.mark.parametrize(
    "name, scales",
    [("w8a8", [1, 2]), ("w8a8-atensor", [2, 2]), ("w8a8-astatic", [0.5, 0.5])],
)
def test_inputs_by_hand(name, scales):
    """Two tokens with absmax 127 and 254; the static scale is calibrated to 63.5, so they clip at -128 and 127."""
    fmt = get_format(name)
    shared = fmt.with_input_absmax(fmt.quantize(np.ones((1, 3), np.float32)), 63.5).shared
    x = np.array([[127, 1.4, -3], [0.6, -254, 5]], dtype=np.float32)
    scale = np.array(scales, dtype=np.float32)[:, None]
    expected = {
        "w8a8": [[127, 1, -3], [0, -127, 2]],
        "w8a8-atensor": [[64, 1, -2], [0, -127, 2]],
        "w8a8-astatic": [[127, 3, -6], [1, -128, 10]],
    }[name]
    np.testing.assert_array_equal(fmt.fake_quantize_input(x, shared), np.array(expected) * scale)


@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_half_a_step(name):
    fmt, weight = get_format(name), make_weight(67, 384)
    qtensor = fmt.quantize(weight)
    half_step = 0.5 * qtensor.parts["weight_scale"]
    assert (np.abs(fmt.dequantize_ref(qtensor) - weight) <= half_step * (1 + 2**-16)).all()
    assert qtensor.size_bytes == fmt.size_bytes(weight.shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("absmax", [0.0, 1e-42, 1e-6, 3e38], ids="{:.0e}".format)
def test_any_magnitude_stays_finite(name, absmax):
    fmt = get_format(name)
    weight = np.random.default_rng(3).uniform(-absmax, absmax, (4, 256)).astype(np.float32)
    got = fmt.dequantize_ref(fmt.quantize(weight))
    assert np.isfinite(got).all() and float(np.abs(got).max()) <= absmax * (1 + 2**-20)


@pytest.mark.parametrize("weight, message", [(np.full((1, 4), np.nan), "finite"), (np.zeros(4), r"matrices \[N, K\]")])
def test_bad_weights_are_refused(weight, message):
    with pytest.raises(InputError, match=message):
        get_format("w8a8").quantize(weight.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_compressed_tensors_reads_the_same_weights(name):
    compressed_tensors = pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    fmt = get_format(name)
    qtensor = fmt.quantize(make_weight(67, 384))
    strategy = "tensor" if fmt.per_tensor_weight else "channel"
    args = compressed_tensors.quantization.QuantizationArgs(num_bits=8, strategy=strategy, symmetric=True)
    scale = torch.from_numpy(qtensor.parts["weight_scale"])
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    theirs = dequantize(
        torch.from_numpy(qtensor.parts["weight"]),
        scale=scale[0] if fmt.per_tensor_weight else scale,
        zero_point=None,
        args=args,
        dtype=torch.float32,
    )
    np.testing.assert_array_equal(fmt.dequantize_ref(qtensor), theirs.numpy())


@pytest.mark.parametrize("name", NAMES)
def test_compressed_tensors_rounds_inputs_the_same_way(name):
    """At the same scales, exactly. Its dynamic scales are absmax / 127.5, where the paper and we have absmax / 127."""
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils.helpers import compute_dynamic_scales_and_zp

    fmt = get_format(name)
    x = np.random.default_rng(4).standard_normal((9, 384)).astype(np.float32)
    shared = fmt.with_input_absmax(fmt.quantize(make_weight(2, 384)), 2.0).shared
    args = QuantizationArgs(
        num_bits=8,
        strategy="token" if fmt.inputs == "per_token" else "tensor",
        symmetric=True,
        dynamic=fmt.inputs != "static",
    )
    scale = torch.from_numpy(fmt.input_scale(x, shared))
    theirs = fake_quantize(torch.from_numpy(x), scale=scale, zero_point=None, args=args)
    np.testing.assert_array_equal(fmt.fake_quantize_input(x, shared), theirs.numpy())
    if fmt.inputs != "static":
        dynamic, _ = compute_dynamic_scales_and_zp(torch.from_numpy(x)[None], args, module=None)
        np.testing.assert_allclose(dynamic.reshape(scale.shape) * 127.5 / 127, scale, rtol=2**-22)
