import numpy as np
import pytest

from qbench.kernels.case import Deviation, deviation, worst

EXPECTED = np.array([[1.0, 2.0], [np.nan, np.inf]])


def test_equal_is_right_under_a_bound_of_zero():
    assert deviation(EXPECTED.copy(), EXPECTED, 0.0).is_right


def test_the_element_nearest_to_its_bound_is_reported():
    found = deviation(np.array([1.5, 20.0, 3.0]), np.array([1.0, 12.0, 3.0]), np.array([1.0, 10.0, 0.0]))
    assert (found.error, found.bound) == (8.0, 10.0) and found.is_right


@pytest.mark.parametrize(
    "got",
    [
        pytest.param([[1.0, 2.5], [np.nan, np.inf]], id="beyond"),
        pytest.param([[1.0, np.nan], [np.nan, np.inf]], id="NaN where a number was due"),
        pytest.param([[1.0, 2.0], [0.0, np.inf]], id="number where NaN was due"),
        pytest.param([[1.0, 2.0], [np.nan, -np.inf]], id="the other infinity"),
        pytest.param([[1.0, 2.0]], id="shape"),
    ],
)
def test_a_wrong_element_is_not_right(got):
    assert not deviation(np.array(got), EXPECTED, 0.25).is_right


def test_no_element_is_right():
    assert deviation(np.zeros((0, 3)), np.zeros((0, 3)), 0.0).is_right


def test_worst_is_by_share_of_the_bound():
    small, large = Deviation(0.5, 0.6), Deviation(3.0, 10.0)
    assert worst([large, small]) == small and worst([small, Deviation(1e-9, 0.0)]).bound == 0


def test_the_loosest_bound_is_reported_next_to_the_results():
    expected, bound = np.array([3.0, -4.0, np.inf, 0.0]), np.array([0.25, 0.0, 9.0, 0.5])
    assert deviation(expected.copy(), expected, bound).loosest == 0.5 / np.sqrt(25 / 3)
    assert deviation(expected.copy(), expected, 0.0).loosest == 0
    assert deviation(np.zeros(2), np.zeros(2), 0.1).loosest == 0
