"""What is marked as warm-up and as outlier, on series written out and on noise without either."""

import numpy as np
import pytest

from qbench.harness.median_interval import median_interval
from qbench.harness.steady import outliers, warm_up_rounds


@pytest.mark.parametrize(
    "seconds, expected",
    [
        pytest.param([], 0, id="none"),
        pytest.param([9.0], 1, id="one alone"),
        pytest.param([1.0, 1.0, 1.0], 1, id="the first always"),
        pytest.param([9.0, 5.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 3, id="a slow start"),
        pytest.param([9.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0], 1, id="a slow one later is an outlier"),
        pytest.param([1.0, 0.9, 0.9, 1.0, 1.0, 1.0, 1.0], 1, id="a fast start is none"),
        pytest.param([1.0, 1.01, 1.01, 1.0, 1.0, 1.0, 1.0], 1, id="a hundredth is no matter"),
        pytest.param([9.0, 9.0, 8.0, 7.0, 1.0, 1.0, 1.0], 4, id="at most half of those after the first"),
    ],
)
def test_warm_up(seconds, expected):
    assert warm_up_rounds(seconds) == expected


def test_noise_alone_is_seldom_taken_for_a_warm_up():
    rng = np.random.default_rng(0)
    series = 1 + 0.05 * rng.standard_normal((1000, 21))
    more = [warm_up_rounds(row.tolist()) > 1 for row in series]
    # 10 later samples estimate the deviation to a quarter, so that 3 of them are 2 in a bad case: 1 in 20 at most
    assert np.mean(more) < 0.05


def test_outliers_are_told_by_their_index():
    samples = [1.0, 1.1, 0.9, 1.05, 5.0, 0.95, 1.0, 0.2]
    assert outliers(samples) == [4, 7]
    assert outliers([]) == outliers([1.0, 9.0]) == []


@pytest.mark.parametrize("count, rank", [(6, 1), (8, 1), (9, 2), (20, 6), (50, 18)])
def test_median_interval_ranks_are_those_of_the_table(count, rank):
    samples = [float(value) for value in range(count, 0, -1)]
    assert median_interval(samples) == (rank, count + 1 - rank), "Conover 1999, table A3"


def test_median_interval_needs_six():
    assert median_interval([1.0] * 5) is None and median_interval([]) is None


def test_median_interval_covers_the_median_of_any_distribution():
    rng = np.random.default_rng(1)
    runs, count = 2000, 15
    covered = 0
    for samples in rng.lognormal(sigma=1.0, size=(runs, count)):
        low, high = median_interval(samples.tolist())
        covered += low <= 1.0 <= high
    three_sigma = 3 * np.sqrt(0.05 * 0.95 / runs)
    assert covered / runs >= 0.95 - three_sigma
