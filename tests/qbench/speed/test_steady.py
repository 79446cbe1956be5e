"""Samples marked as warm-up and as outliers, on series written out and on noise without either."""

import numpy as np
import pytest
from support.close import assert_close

from qbench.speed.steady import outliers, warm_up_rounds
from qbench.statistics.autocorrelation import widening
from qbench.statistics.intervals import independent_rank, median_interval


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


def test_outliers_are_reported_by_their_index():
    samples = [1.0, 1.1, 0.9, 1.05, 5.0, 0.95, 1.0, 0.2]
    assert outliers(samples) == [4, 7]
    assert outliers([]) == outliers([1.0, 9.0]) == []


@pytest.mark.parametrize("count, rank", [(5, 0), (6, 1), (8, 1), (9, 2), (20, 6), (50, 18)])
def test_ranks_of_independent_samples_match_the_table(count, rank):
    assert independent_rank(count) == rank, "of the binomial distribution"


def test_samples_that_alternate_are_not_similar():
    samples = [1.0, 20.0, 2.0, 19.0, 3.0, 18.0, 4.0, 17.0, 5.0, 16.0]
    assert widening(samples) == widening([1.0] * 9) == 1.0 and widening([]) == widening([1.0, 2.0]) == 1.0
    assert median_interval(samples) == (2.0, 19.0)


def test_samples_that_drift_give_less_information():
    drift = [float(value) for value in range(20)]
    assert widening(drift) > 3
    assert median_interval(drift) is None, "twenty of a drift are one spell"


def test_median_interval_needs_six():
    assert median_interval([1.0, 3.0, 2.0, 5.0, 4.0]) is None and median_interval([]) is None


def test_median_interval_covers_the_median_of_any_distribution():
    rng = np.random.default_rng(1)
    runs, count = 2000, 15
    covered = 0
    for samples in rng.lognormal(sigma=1.0, size=(runs, count)):
        found = median_interval(samples.tolist())
        covered += found is None or found[0] <= 1.0 <= found[1]
    three_sigma = 3 * np.sqrt(0.05 * 0.95 / runs)
    assert covered / runs >= 0.95 - three_sigma


def test_widening_is_that_of_the_mean_of_a_process_that_forgets():
    rng = np.random.default_rng(2)
    correlation, count = 0.6, 4000
    values = [rng.standard_normal()]
    for step in rng.standard_normal(count - 1) * np.sqrt(1 - correlation**2):
        values.append(correlation * values[-1] + step)
    # the estimate of r errs by sqrt((1 - r^2) / n), 0.013; ranks of normal numbers are correlated 4 % less than they
    r = correlation
    assert_close(widening(values), np.sqrt((1 + r) / (1 - r)), rtol=(3 * 0.013 + 0.04 * r) / (1 - r * r))
