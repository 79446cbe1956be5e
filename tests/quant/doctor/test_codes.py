"""Codes and scales as the doctor sees them, compared with the weights of the formats' own codecs."""

import numpy as np
import pytest
from support.weights import make_weight

from quant.doctor.measure import group_columns, measure, read_codes
from quant.formats import dequantize, get_format

WITHOUT_OFFSET = [
    "q4_0",
    "q5_0",
    "q8_0",
    "q3_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "mxfp4",
    "w8",
    "w4g128",
    "w3g64-asym",
    "w8a8",
]


@pytest.mark.parametrize("kind", ["gauss", "outliers", "zero_rows"])
@pytest.mark.parametrize("name", [*WITHOUT_OFFSET, "llm-int8"])
def test_scale_times_level_is_the_weight(name, kind):
    qtensor = get_format(name).quantize(make_weight(kind))
    codes = read_codes(qtensor)
    np.testing.assert_allclose(codes.scale * codes.level, dequantize(qtensor), rtol=2**-22, atol=0)


@pytest.mark.parametrize("name", ["q4_1", "q5_1", "q2_k", "q4_k", "q5_k"])
def test_an_offset_is_the_same_under_one_scale(name):
    qtensor = get_format(name).quantize(make_weight("shifted"))
    codes, weight = read_codes(qtensor), dequantize(qtensor)
    offset = (weight - codes.scale * codes.level).reshape(-1, 16)
    assert np.ptp(offset, axis=1).max() <= 2**-20 * np.abs(weight).max() and np.abs(offset).max() > 0


@pytest.mark.parametrize(
    "name, num_levels", [("q4_0", 16), ("q2_k", 4), ("iq4_xs", 16), ("w3g64-asym", 8), ("w8a8", 255)]
)
def test_ends_are_the_extremes_of_the_levels(name, num_levels):
    codes = read_codes(get_format(name).quantize(make_weight("gauss")))
    assert codes.num_levels == num_levels and codes.at_end.any() and not codes.at_end.all()
    levels = np.unique(codes.level[codes.at_end]) if name != "w3g64-asym" else None  # moved by zero points there
    if levels is not None:
        assert set(levels) <= {codes.level.min(), codes.level.max()}


def test_floats_have_no_codes():
    assert read_codes(get_format("bf16").quantize(make_weight("gauss"))) is None


def test_groups_in_their_own_order():
    """Act-order: columns of one group are separated, and belong together."""
    fmt, rng = get_format("w4g32"), np.random.default_rng(0)
    g_idx = rng.permutation(np.arange(128) // 32)
    qtensor = fmt.pack(np.zeros((2, 128), np.int8), np.ones((2, 4), np.float16), g_idx=g_idx)
    order, size = group_columns(qtensor)
    assert size == 32
    np.testing.assert_array_equal(g_idx[order], np.arange(128) // 32)


def test_sqnr_by_its_definition():
    weight = make_weight("gauss")
    reference, rounded = get_format("f32").quantize(weight), get_format("q4_0").quantize(weight)
    got = measure("x", rounded, reference)
    noise = np.square(dequantize(rounded).astype(np.float64) - weight).sum()
    assert got.sqnr_db == pytest.approx(10 * np.log10(np.square(weight.astype(np.float64)).sum() / noise), abs=1e-6)
    assert measure("x", reference, reference).sqnr_db == np.inf and measure("x", rounded, None).sqnr_db is None
