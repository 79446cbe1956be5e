import numpy as np
from support.close import assert_close

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_mean
from qbench.statistics.verdict import (
    POWER,
    accuracy_difference,
    detectable_difference,
    detectable_flips,
    detectable_ratio,
    needed_samples,
)


def test_a_detectable_difference_is_2_8_errors():
    error = 0.01
    found = detectable_difference(Estimate(0.3, error, 0.3 - 1.959964 * error, 0.3 + 1.959964 * error))
    assert_close(found, (1.959964 + 0.841621) * error, rtol=1e-6)


def test_a_detectable_ratio_is_on_a_logarithmic_scale():
    assert_close(detectable_ratio(Estimate(1.2, 0.1, 1.1, 1.1 * np.e**0.2)), 0.2 * 2.801585 / (2 * 1.959964), rtol=1e-6)


def test_a_floor_is_passed_before_anything_is_found():
    estimate = Estimate(0.0, 0.01, -0.0196, 0.0196)
    assert_close(detectable_difference(estimate, floor=0.05), 0.05 + 0.841621 * 0.01, rtol=1e-4)
    assert detectable_difference(estimate, floor=1e-9) == detectable_difference(estimate)


def test_no_interval_no_answer():
    assert detectable_difference(Estimate(1.0)) is None and detectable_ratio(Estimate(1.0)) is None


def test_six_flips_one_way_are_the_fewest_that_count():
    assert detectable_flips(0, 100) == 0.06
    assert accuracy_difference("1" * 6 + "0" * 94, "0" * 100)["p_value"] < 0.05
    assert accuracy_difference("1" * 5 + "0" * 95, "0" * 100)["p_value"] > 0.05


def test_a_difference_of_two_errors_needs_twice_the_samples():
    """(1.96 + 0.84) errors are found in 80 % of cases: 2 errors of n samples are so many of n * (2.8 / 2)**2."""
    one = Estimate(0.02, 0.01, 0.02 - 0.01 * 1.959964, 0.02 + 0.01 * 1.959964)
    assert needed_samples(100, one, neutral=0.0) == int(np.ceil(100 * (2.801585 / 2) ** 2))
    assert needed_samples(100, one, neutral=0.0, floor=0.02) is None
    assert needed_samples(100, one, neutral=0.0, floor=0.019) == int(np.ceil(100 * (0.841621 * 0.01 / 0.001) ** 2))
    assert needed_samples(100, Estimate(0.02), neutral=0.0) is None
    assert needed_samples(100, Estimate(0.0, 0.01, -0.02, 0.02), neutral=0.0) is None
    ratio = Estimate(*(np.exp(x).item() for x in (0.02, 0.01)), np.exp(one.low).item(), np.exp(one.high).item())
    assert needed_samples(100, ratio, neutral=1.0) == needed_samples(100, one, neutral=0.0)


def test_the_named_number_of_samples_decides_as_often_as_stated():
    rng, runs, found = np.random.default_rng(0), 400, 0
    first = Estimate(0.1, 0.1, 0.1 - 0.1 * 1.959964, 0.1 + 0.1 * 1.959964)  # of 100 samples with a spread of 1
    needed = needed_samples(100, first, neutral=0.0)
    for _ in range(runs):
        found += student_mean(rng.normal(0.1, 1.0, needed)).p_value < 0.05
    assert abs(found / runs - POWER) < 3 * np.sqrt(POWER * (1 - POWER) / runs)


def test_a_detectable_difference_is_detected_as_often_as_stated():
    rng = np.random.default_rng(0)
    num_items, share = 400, 0.1  # of items that flip
    shift = detectable_flips(int(share * num_items), num_items)
    lost = (share + shift) / 2
    found = 0
    runs = 400
    for _ in range(runs):
        draw = rng.random(num_items)
        a = draw < 0.6
        b = np.where(draw < lost, False, np.where(draw > 1 - (share - lost), True, a))
        found += accuracy_difference(a, b)["p_value"] < 0.05
    # The exact test is a little less powerful than the normal law says; four errors of a share of `runs`.
    assert abs(found / runs - POWER) < 0.05 + 4 * np.sqrt(POWER * (1 - POWER) / runs)
