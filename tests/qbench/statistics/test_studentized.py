import numpy as np
import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.intervals import RESAMPLES, block_mean, token_mean


def blocks_of(num_blocks: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sums of blocks of unlike lengths, and the lengths."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(20, 200, num_blocks)
    return tokens * rng.gamma(2.0, size=num_blocks), tokens


def test_value_weighs_tokens_not_blocks():
    assert_close(token_mean([np.array([1.0]), np.array([4.0, 4.0, 4.0])]).value, 3.25)


def test_error_is_that_of_a_resampled_mean():
    sums, tokens = blocks_of(200)
    resampled = stats.bootstrap(
        (sums, tokens),
        lambda s, m, axis: s.sum(axis) / m.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    # A standard deviation of R values has a relative error of 1 / sqrt(2 R); linearizing a ratio costs another 1 / n.
    tolerance = 4 / np.sqrt(2 * RESAMPLES) + 1 / len(sums)
    assert_close(block_mean(sums, tokens).error, resampled.standard_error, rtol=tolerance)


@pytest.mark.parametrize("num_blocks", [2, 10])
def test_error_of_equal_blocks_is_that_of_a_mean(num_blocks):
    values = np.random.default_rng(3).normal(size=num_blocks)
    assert_close(block_mean(4 * values, np.full(num_blocks, 4)).error, stats.sem(values), rtol=2**-40)


def test_interval_matches_student_under_a_normal_law():
    values = np.random.default_rng(2).normal(3.0, 1.0, size=40)
    found = block_mean(values, np.ones(40))
    students = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    # Quantiles of R draws at 2.5 % err by sqrt(0.025 * 0.975 / R) / density, and 40 values are only nearly normal.
    tolerance = (4 * np.sqrt(0.025 * 0.975 / RESAMPLES) / 0.058 + 0.25) * found.error
    assert_close([found.low, found.high], [students.low, students.high], atol=tolerance)


def test_p_value_is_below_5_percent_just_where_the_interval_leaves_out_zero():
    sums, tokens = blocks_of(30)
    found = block_mean(sums, tokens)
    for end, side in ((found.low, 1), (found.high, -1)):
        inside = block_mean(sums - (end + side * 0.01 * found.error) * tokens, tokens)
        outside = block_mean(sums - (end - side * 0.01 * found.error) * tokens, tokens)
        assert inside.p_value >= 0.05 > outside.p_value or outside.p_value >= 0.05 > inside.p_value


def test_equal_input_equal_interval():
    sums, tokens = blocks_of(9)
    assert block_mean(sums, tokens) == block_mean(sums, tokens)


def test_interval_does_not_depend_on_how_resamples_are_split(monkeypatch):
    sums, tokens = blocks_of(50)
    whole = block_mean(sums, tokens)
    monkeypatch.setattr("qbench.statistics.intervals.CHUNK", 50 * 7)
    assert block_mean(sums, tokens) == whole


@pytest.mark.parametrize(
    "blocks", [pytest.param([np.ones(5)], id="one block"), pytest.param([np.ones(2), np.array([np.inf])], id="inf")]
)
def test_no_interval_is_given_if_it_cannot_be_known(blocks):
    estimate = token_mean(blocks)
    assert (estimate.error, estimate.low, estimate.high, estimate.p_value) == (None, None, None, None)


@pytest.mark.parametrize("blocks", [[], [np.empty(0)]], ids=["no blocks", "an empty one"])
def test_no_tokens_have_no_mean(blocks):
    with pytest.raises(ValueError, match="no mean"):
        token_mean(blocks)


def test_an_empty_block_among_others_changes_nothing():
    sums, tokens = blocks_of(30)
    found = block_mean(np.append(sums, 0.0), np.append(tokens, 0))
    assert_close(found.value, block_mean(sums, tokens).value)


def test_blocks_without_any_difference():
    found = block_mean(np.zeros(20), np.full(20, 7))
    assert (found.value, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("num_blocks", [6, 25, 60])
def test_equal_blocks_but_one_have_a_finite_interval(num_blocks):
    """A third of the resamples draws the equal blocks alone: they have no spread, and no studentized mean."""
    sums = np.full(num_blocks, 1000.0)
    sums[3] = 1100.0
    found = block_mean(sums, np.full(num_blocks, 500))
    assert found.low is not None and found.high is not None and np.isfinite([found.low, found.high]).all()
    assert found.low < found.value < found.high
