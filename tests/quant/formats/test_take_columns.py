"""Columns of a matrix in every format: the codes of the whole, without a new rounding."""

import numpy as np
import pytest

from quant.errors import InputError
from quant.formats import FORMATS, ActivationFormat, get_format

NAMES = (
    *(name for name, fmt in FORMATS.items() if fmt.writes),
    "w4g128",
    "w3g64-asym",
    "w8",
    "w2g32",
    "w8a8",
    "w8a8-wtensor-astatic",
)
COLUMNS = slice(256, 768)


def matrix():
    return np.random.default_rng(5).standard_normal((6, 1024)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_columns_match_the_whole(name):
    fmt = get_format(name)
    whole = fmt.quantize(matrix())
    part = fmt.take_columns(whole, COLUMNS)
    assert part.shape == (6, 512)
    np.testing.assert_array_equal(fmt.dequantize(part), fmt.dequantize(whole)[:, COLUMNS])


def test_columns_of_llm_int8_keep_their_outlier_features():
    fmt = get_format("llm-int8")
    weight, features = matrix(), np.array([3, 300, 767, 900], dtype=np.int32)
    whole = fmt.with_outliers(fmt.quantize(weight), weight, features)
    part = fmt.take_columns(whole, COLUMNS)
    np.testing.assert_array_equal(part.shared["outlier_features"], [44, 511])
    np.testing.assert_array_equal(fmt.dequantize_ref(part), fmt.dequantize_ref(whole)[:, COLUMNS])
    assert "outlier_features" not in fmt.take_columns(whole, slice(320, 640)).shared


def test_features_in_act_order_are_refused():
    fmt = get_format("w4g128")
    q, scale, zero_point, _ = fmt.unpack(fmt.quantize(matrix()))
    tensor = fmt.pack(q, scale, zero_point, g_idx=np.arange(1024)[::-1] // 128)
    with pytest.raises(InputError, match="act-order"):
        fmt.take_columns(tensor, COLUMNS)


@pytest.mark.parametrize("name", ["w8a8", "w8a8-atensor", "llm-int8"])
def test_a_zero_column_sets_the_scale_and_adds_nothing(name):
    fmt = get_format(name)
    assert isinstance(fmt, ActivationFormat)
    whole, x = fmt.quantize(matrix()), np.random.default_rng(6).standard_normal((5, 1024)).astype(np.float32)
    absmax = fmt.input_absmax(x, {})
    part = fmt.add_zero_column(fmt.take_columns(whole, COLUMNS))
    wide = np.hstack([x[:, COLUMNS], absmax])
    rounded = fmt.fake_quantize_input(wide, part.shared)[:, :-1]
    np.testing.assert_array_equal(rounded, fmt.fake_quantize_input(x, {})[:, COLUMNS])
    assert not fmt.dequantize(part)[:, -1].any()
