"""Wrong results, which a check must distinguish from right ones."""

from collections.abc import Iterator

import numpy as np
import pytest
from support.close import assert_close


def spoiled(result: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Zeros, a hundredth too much, and each axis rolled by one, wherever that is another result."""
    wrong = [("zeros", np.zeros_like(result)), ("times 1.01", (result * 1.01).astype(result.dtype))]
    wrong += [(f"axis {axis} rolled", np.roll(result, 1, axis)) for axis in range(result.ndim)]
    is_float = result.dtype.kind == "f"
    return ((label, other) for label, other in wrong if not np.array_equal(other, result, equal_nan=is_float))


def one_element_off(result: np.ndarray) -> np.ndarray:
    """The middle one, by a sixteenth of the root mean square of all that are finite (1, of zeros); of integers by 1."""
    wrong, finite = result.copy(), result[np.isfinite(result)].astype(np.float64)
    size = np.sqrt(np.square(finite).mean()) or 1.0
    wrong.flat[wrong.size // 2] += size / 16 if result.dtype.kind == "f" else 1
    return wrong


def assert_tells(got: np.ndarray, expected: np.ndarray, atol: np.ndarray) -> None:
    """`assert_close`, with a tolerance that spoiled results exceed."""
    assert_close(got, expected, atol=atol)
    for label, wrong in spoiled(expected):
        with pytest.raises(AssertionError):
            assert_close(wrong, expected, atol=atol)
            pytest.fail(f"{label} is within the tolerance")
