"""LLM.int8(): codes and decomposition by hand. bitsandbytes' own code is compared in tests/interop."""

import numpy as np
import pytest

from quant.errors import InputError
from quant.formats import get_format

FORMAT = get_format("llm-int8")


def test_codes_by_hand():
    qtensor = FORMAT.quantize(np.array([[2, -1.01, 0], [0, 0, 0]], dtype=np.float32))
    assert qtensor.parts["weight"].tolist() == [[127, -64, 0], [0, 0, 0]]
    assert qtensor.parts["SCB"].tolist() == [2, 0]
    assert FORMAT.dequantize_ref(qtensor)[0].tolist() == pytest.approx([2, -128 / 127, 0], rel=2**-22)


def test_decomposition_by_hand():
    """Feature 1 reaches the threshold in one token: floats there in both, and its 5.08 is the second token's absmax."""
    x = np.array([[1.27, 6.0, -0.014], [2.0, 5.08, 0.1]], dtype=np.float32)
    got = FORMAT.fake_quantize_input(x, {})
    np.testing.assert_array_equal(got[:, 1], x[:, 1])
    np.testing.assert_allclose(got[:, [0, 2]], [[1.27, -0.01], [2.0, 0.12]], rtol=2**-9)


def test_just_below_the_threshold_is_no_outlier():
    x = np.array([[5.99, 1.0]], dtype=np.float32)
    assert not np.array_equal(FORMAT.fake_quantize_input(x, {}), x)


def test_outliers_leave_the_rest_as_precise_as_without_them():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (16, 64)).astype(np.float32)
    x[3, 7] = 100.0
    error = np.abs(FORMAT.fake_quantize_input(x, {}) - x)
    assert error.max() <= 0.51 / 127 + 2**-11


def test_beyond_float16_is_an_outlier():
    x = np.array([[1e6, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(FORMAT.fake_quantize_input(x, {}), x)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_values_beyond_float16_are_refused(value):
    with pytest.raises(InputError, match="llm-int8 holds weights of magnitudes up to 65504"):
        FORMAT.quantize(np.full((1, 4), value, dtype=np.float32))
