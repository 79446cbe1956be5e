import numpy as np
import pytest
from support.spoilers import assert_tells, one_element_off, spoiled

RESULT = np.array([[1.0, -2.0], [3.0, 4.0]])


def test_a_spoiled_result_differs():
    labels = [label for label, wrong in spoiled(RESULT)]
    assert labels == ["zeros", "times 1.01", "axis 0 rolled", "axis 1 rolled"]
    assert [label for label, wrong in spoiled(np.ones((1, 3)))] == ["zeros", "times 1.01"]  # nothing is to be rolled


def test_one_element_is_off():
    assert one_element_off(RESULT).tolist() == [[1, -2], [3 + 7.5**0.5 / 16, 4]]
    assert one_element_off(np.zeros(3)).tolist() == [0, 1 / 16, 0]
    assert one_element_off(np.array([5, 6])).tolist() == [5, 7]


def test_a_tight_tolerance_passes():
    assert_tells(RESULT + 1e-3, RESULT, np.full_like(RESULT, 1e-2))


@pytest.mark.parametrize(
    "got, atol, message",
    [
        pytest.param(RESULT + 1, 0.5, "4 of 4 elements off", id="a wrong result"),
        pytest.param(RESULT, 5.0, "zeros is within the tolerance", id="a tolerance for zeros"),
        pytest.param(RESULT, 0.05, "times 1.01 is within the tolerance", id="a tolerance for a hundredth"),
    ],
)
def test_a_loose_tolerance_or_a_wrong_result_fails(got, atol, message):
    with pytest.raises((AssertionError, pytest.fail.Exception), match=message):
        assert_tells(got, RESULT, np.full_like(RESULT, atol))
