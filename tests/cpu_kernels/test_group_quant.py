"""C++ integer groups and int8 rows: the bits of the NumPy codecs, on every instruction set."""

import numpy as np
import pytest
from support.threads import with_threads

from cpu_kernels import _ext
from quant.errors import InputError
from quant.formats import Int8Format, IntGroupFormat, LlmInt8Format, get_format
from quant.formats.bits import pack_int32
from quant.qtensor import QTensor

OP = "group_quant"
GROUP_FORMATS = [
    f"w{bits}{group}{suffix}" for bits in (2, 3, 4, 8) for group in ("", "g37", "g64") for suffix in ("", "-asym")
]
SHAPES = [(1, 1), (3, 37), (2, 64), (131, 74), (5, 4736)]


def weights_of_every_kind(num_rows: int, row_size: int) -> np.ndarray:
    """Usual rows, then ties, one sign, zeros, and magnitudes that float16 scales do not hold."""
    rng = np.random.default_rng((num_rows, row_size))
    weight = rng.standard_normal((num_rows, row_size))
    weight[1::7] = rng.integers(-9, 9, weight[1::7].shape) / 2
    weight[2::7] = np.abs(weight[2::7]) + 0.3
    weight[3::7] = -np.abs(weight[3::7]) - 0.3
    weight[4::14], weight[11::14] = 0.0, -0.0
    weight[5::7] *= 10.0 ** rng.integers(-44, 39, weight[5::7].shape)
    return np.clip(weight, -3e38, 3e38).astype(np.float32)


def holds(fmt: IntGroupFormat, row_size: int) -> bool:
    return row_size % (fmt.group_size or 1) == 0


def assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", GROUP_FORMATS)
def test_groups_match_the_codec(isa, name):
    fmt = get_format(name)
    for num_rows, row_size in SHAPES:
        if not holds(fmt, row_size):
            continue
        weight = weights_of_every_kind(num_rows, row_size)
        expected = fmt.quantize_ref(weight)
        group_size = fmt.group_size or row_size
        packed, scale, zero_point, who = _ext.quantize_groups(weight, fmt.bits, group_size, fmt.symmetric, isa)
        assert who == isa
        assert_same(packed, expected.parts["weight_packed"])
        assert_same(scale, expected.parts["weight_scale"])
        assert (zero_point is None) == fmt.symmetric
        if zero_point is not None:
            assert_same(zero_point, expected.parts["weight_zero_point"])
        values, who = _ext.dequantize_groups(packed, scale, zero_point, None, fmt.bits, row_size, isa)
        assert who == isa
        assert_same(values, fmt.dequantize_ref(expected))


@pytest.mark.parametrize("name", ["w8a8", "w8a8-wtensor"])
def test_rows_match_the_codec(isa, name):
    fmt = get_format(name)
    for shape in SHAPES:
        weight = weights_of_every_kind(*shape)
        expected = fmt.quantize_ref(weight)
        q, scale, who = _ext.quantize_rows(weight, fmt.per_tensor_weight, isa)
        assert who == isa
        assert_same(q, expected.parts["weight"])
        assert_same(scale, expected.parts["weight_scale"])
        values, who = _ext.dequantize_rows(q, scale, isa)
        assert who == isa
        assert_same(values, fmt.dequantize_ref(expected))


def test_llm_int8_is_that_of_the_codec(isa):
    fmt = get_format("llm-int8")
    for shape in SHAPES:
        weight = np.clip(weights_of_every_kind(*shape), -65504, 65504)
        expected = fmt.quantize_ref(weight)
        q, absmax, who = _ext.quantize_llm_int8(weight, isa)
        assert who == isa
        assert_same(q, expected.parts["weight"])
        assert_same(absmax[:, 0], expected.parts["SCB"])


def test_llm_int8_takes_the_kernel(monkeypatch):
    fmt = get_format("llm-int8")
    weight = np.random.default_rng(2).standard_normal((6, 128)).astype(np.float32)
    expected = fmt.quantize_ref(weight)
    monkeypatch.setattr(LlmInt8Format, "quantize_ref", None)
    got = fmt.quantize(weight.T.copy().T)
    for part, array in expected.parts.items():
        assert_same(got.parts[part], array)


@pytest.mark.parametrize("bad", [65536.0, np.nan, -np.inf])
def test_llm_int8_refuses_values_beyond_float16(bad):
    weight = np.zeros((5, 64), np.float32)
    weight[3, 7] = bad
    with pytest.raises(InputError, match="llm-int8 holds weights of magnitudes up to 65504"):
        get_format("llm-int8").quantize(weight)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("row_size", [1, 7, 8, 9, 31, 33, 250], ids="K={}".format)
def test_every_code_survives_the_packing(isa, bits, row_size):
    fmt = IntGroupFormat(bits, None)
    q = np.random.default_rng(bits).integers(fmt.qmin, fmt.qmax + 1, (5, row_size)).astype(np.int8)
    scale = np.ones((5, 1), np.float16)
    values, _ = _ext.dequantize_groups(pack_int32(q, bits), scale, None, None, bits, row_size, isa)
    np.testing.assert_array_equal(values, q)


@pytest.mark.parametrize("name", ["w4g32", "w3g32-asym"])
def test_groups_in_act_order(name):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(weights_of_every_kind(9, 128))
    g_idx = np.random.default_rng(1).permutation(np.arange(128) // 32).astype(np.int32)
    ordered = QTensor(name, (9, 128), qtensor.parts, {"g_idx": g_idx})
    assert_same(fmt.dequantize(ordered), fmt.dequantize_ref(ordered))


@pytest.mark.parametrize("name", ["w4g37", "w3g37-asym"])
def test_groups_in_any_order_of_features(isa, name):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(weights_of_every_kind(9, 111))
    packed, scale = qtensor.parts["weight_packed"], qtensor.parts["weight_scale"]
    group_of = np.random.default_rng(1).permutation(np.arange(111) // 37).astype(np.int32)
    zero_point = qtensor.parts.get("weight_zero_point")
    values, who = _ext.dequantize_groups(packed, scale, zero_point, group_of, fmt.bits, 111, isa)
    assert who == isa
    assert_same(values, fmt.dequantize_ref(QTensor(name, (9, 111), qtensor.parts, {"g_idx": group_of})))


@pytest.mark.parametrize("name", ["w4g64-asym", "w3", "w8a8", "w8a8-wtensor"])
def test_formats_take_the_kernels(monkeypatch, name):
    fmt = get_format(name)
    weight = weights_of_every_kind(6, 128)
    expected, values = fmt.quantize_ref(weight), fmt.dequantize_ref(fmt.quantize_ref(weight))
    for cls in (IntGroupFormat, Int8Format):
        monkeypatch.setattr(cls, "quantize_ref", None)
        monkeypatch.setattr(cls, "dequantize_ref", None)
    got = fmt.quantize(weight.T.copy().T)  # not contiguous: it is copied
    assert list(got.parts) == list(expected.parts)
    for part, array in expected.parts.items():
        assert_same(got.parts[part], array)
    assert_same(fmt.dequantize(got), values)


def test_threads_do_not_show():
    weight = weights_of_every_kind(1000, 64)
    got = with_threads((1, 2), lambda: get_format("w4g32-asym").quantize(weight))
    for part in got[0].parts:
        assert_same(got[0].parts[part], got[1].parts[part])


@pytest.mark.parametrize("name", ["w4g32", "w8a8", "w8a8-wtensor"])
def test_no_rows(name):
    fmt = get_format(name)
    got = fmt.quantize(np.empty((0, 64), np.float32))
    assert fmt.dequantize(got).shape == (0, 64)


@pytest.mark.parametrize("name", ["w4g32", "w3g32-asym", "w8a8", "w8a8-wtensor"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (4, 63)], ids=str)
def test_non_finite_weights_are_refused(name, bad, place):
    weight = np.zeros((5, 64), np.float32)
    weight[place] = bad
    with pytest.raises(InputError, match=f"{name} holds finite weights, got NaN or inf"):
        get_format(name).quantize(weight)


W, Q, S = np.zeros((4, 64), np.float32), np.zeros((4, 64), np.int8), np.ones((4, 1), np.float32)
PACKED, HALVES = np.zeros((4, 8), np.int32), np.ones((4, 2), np.float16)


@pytest.mark.parametrize(
    "call, error, message",
    [
        pytest.param(lambda: _ext.quantize_groups(W, 5, 32, True, None), ValueError, "bits: got 5", id="bits"),
        pytest.param(lambda: _ext.quantize_groups(W, 4, 48, True, None), ValueError, "got 48, expected a div", id="g"),
        pytest.param(lambda: _ext.quantize_groups(W, 4, 0, True, None), ValueError, "group_size: got 0", id="g=0"),
        pytest.param(lambda: _ext.quantize_groups(Q, 4, 32, True, None), TypeError, r"got int8 \[4, 64\]", id="dtype"),
        pytest.param(lambda: _ext.quantize_groups(W.T, 4, 4, True, None), ValueError, "strides", id="strides"),
        pytest.param(lambda: _ext.quantize_groups(W, 4, 32, True, "sse9"), RuntimeError, "unknown inst", id="isa"),
        pytest.param(
            lambda: _ext.dequantize_groups(PACKED[:, :7].copy(), HALVES, None, None, 4, 64, None),
            ValueError,
            r"packed: got int32 \[4, 7\], expected int32 \[4, 8\]",
            id="packed",
        ),
        pytest.param(
            lambda: _ext.dequantize_groups(PACKED, HALVES, Q[:, :3].copy(), None, 4, 64, None),
            ValueError,
            r"zero_point: got int8 \[4, 3\], expected int8 \[4, 2\]",
            id="zero point",
        ),
        pytest.param(
            lambda: _ext.dequantize_groups(PACKED, HALVES, None, np.full(64, 2, np.int32), 4, 64, None),
            ValueError,
            "group_of: got 2, expected 0 to 1",
            id="group_of",
        ),
        pytest.param(
            lambda: _ext.dequantize_groups(PACKED, HALVES.astype(np.float32), None, None, 4, 64, None),
            TypeError,
            r"scale: got float32 \[4, 2\], expected float16",
            id="scale",
        ),
        pytest.param(lambda: _ext.dequantize_rows(Q, S[:3], None), ValueError, r"float32 \[4, 1\]", id="row scales"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
