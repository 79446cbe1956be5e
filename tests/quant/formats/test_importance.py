import numpy as np
import pytest

from quant.errors import InputError
from quant.formats import get_format
from quant.formats.importance import SMALLEST, importance_blocks


def test_each_block_is_relative_to_its_largest():
    importance = np.array([1, 2, 4, 4, 3e-9, 0, 6e-9, 3e-9], dtype=np.float32)
    expected = np.array([[0.25, 0.5, 1, 1], [0.5, SMALLEST, 1, 0.5]], dtype=np.float32)
    np.testing.assert_array_equal(importance_blocks(importance, 8, 4), expected)


def test_a_block_that_was_never_active_counts_evenly():
    np.testing.assert_array_equal(importance_blocks(np.zeros(8, np.float32), 8, 4), np.ones((2, 4), np.float32))


@pytest.mark.parametrize("factor", [2.0**-60, 2.0**60])
def test_a_common_factor_changes_nothing(factor):
    importance = np.random.default_rng(0).lognormal(0, 2, 64).astype(np.float32)
    scaled = importance.astype(np.float64) * factor
    np.testing.assert_array_equal(importance_blocks(scaled, 64, 32), importance_blocks(importance, 64, 32))


@pytest.mark.parametrize(
    "importance, message",
    [
        pytest.param(np.ones(255), r"importance: got shape \(255,\), expected \(256,\)", id="features"),
        pytest.param(np.ones((1, 256)), r"importance: got shape \(1, 256\), expected \(256,\)", id="two axes"),
        pytest.param(np.full(256, np.nan), "got a NaN, inf or negative value", id="nan"),
        pytest.param(np.full(256, np.inf), "got a NaN, inf or negative value", id="inf"),
        pytest.param(np.full(256, -1.0), "got a NaN, inf or negative value", id="negative"),
    ],
)
@pytest.mark.parametrize("call", ["quantize", "quantize_ref"])
def test_bad_importance(importance, message, call):
    fmt = get_format("q4_k")
    with pytest.raises(InputError, match=message):
        getattr(fmt, call)(np.ones((2, 256), np.float32), importance=importance)


@pytest.mark.parametrize("call", ["quantize", "quantize_ref"])
def test_unknown_effort(call):
    with pytest.raises(ValueError, match="effort: got 'more', expected one of fast, best"):
        getattr(get_format("q4_k"), call)(np.ones((2, 256), np.float32), effort="more")
