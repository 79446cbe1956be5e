import numpy as np
import pytest
from support.close import assert_close

from qbench.harness.statistics import bootstrap_mean, spread


def test_value_weighs_tokens_not_blocks():
    estimate = bootstrap_mean([np.array([1.0]), np.array([4.0, 4.0, 4.0])])
    assert_close(estimate.value, 3.25)


def test_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    runs, blocks, tokens = 300, 40, 8
    covered = 0
    for _ in range(runs):
        # A shift shared by a block's tokens: an interval that took tokens as independent would be far too narrow.
        values = rng.normal(size=(blocks, tokens)) * 0.3 + rng.normal(size=(blocks, 1))
        estimate = bootstrap_mean(values)
        covered += estimate.low <= 0 <= estimate.high
    three_sigma = 3 * np.sqrt(0.05 * 0.95 / runs)
    percentile_bias = 0.02  # a percentile interval of 40 blocks is a little narrow
    assert 0.95 - percentile_bias - three_sigma <= covered / runs <= 0.95 + three_sigma


def test_equal_seed_equal_interval():
    values = np.random.default_rng(1).normal(size=(9, 5))
    assert bootstrap_mean(values) == bootstrap_mean(values)


@pytest.mark.parametrize(
    "blocks", [pytest.param([np.ones(5)], id="one block"), pytest.param([np.ones(2), np.array([np.inf])], id="inf")]
)
def test_no_interval_where_none_can_be_known(blocks):
    estimate = bootstrap_mean(blocks)
    assert (estimate.error, estimate.low, estimate.high) == (None, None, None)


def test_spread_is_not_moved_by_one_slow_sample():
    assert spread([10.0, 11.0, 12.0, 13.0, 1.0]) == {"median": 11.0, "min": 1.0, "max": 13.0, "mad": 1.0}
