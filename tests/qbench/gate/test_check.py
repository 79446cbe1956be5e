from dataclasses import replace

import numpy as np
import pytest

from qbench.gate.check import ALPHA, POWER, Check, judge, sees_slowdown
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_mean


def check(loss: Estimate, **details) -> Check:
    return Check("speed", "a case", "pp8", "tok/s", 100.0, 90.0, loss, **details)


def sure(value: float, p_value: float = 1e-6, half: float = 0.01) -> Estimate:
    return Estimate(value, half / 2, value - half, value + half, p_value)


@pytest.mark.parametrize(
    "loss, details, verdict",
    [
        pytest.param(sure(0.05), {}, "worse", id="sure"),
        pytest.param(sure(0.05, p_value=0.2), {}, "same", id="may be chance"),
        pytest.param(sure(0.05), {"floor": 0.06}, "same", id="the same model lies as far from itself"),
        pytest.param(sure(0.005), {}, "same", id="its interval holds 0"),
        pytest.param(sure(-0.05), {}, "better", id="a gain"),
        pytest.param(sure(-0.05), {"floor": 0.06}, "same", id="a gain within the floor"),
        pytest.param(Estimate(0.05), {}, "untold", id="one sample"),
        pytest.param(Estimate(1e-9), {"is_exact": True}, "worse", id="a byte more"),
        pytest.param(Estimate(-1e-9), {"is_exact": True}, "better", id="a byte less"),
        pytest.param(Estimate(0.0), {"is_exact": True}, "same", id="as many bytes"),
    ],
)
def test_verdict_of_one(loss, details, verdict):
    (judged,) = judge([check(loss, **details)])
    assert judged.verdict == verdict


def test_detectable_loss_of_a_gate_is_its_smallest_check_or_absent_with_one_sample():
    several = judge([check(sure(0.0, 0.5, half)) for half in (0.01, 0.03)])
    assert sees_slowdown(several) == max(one.detectable for one in several) < 1
    assert sees_slowdown(judge([check(sure(0.0, 0.5)), check(Estimate(0.05))])) == np.inf
    assert sees_slowdown([]) == np.inf


def test_among_many_a_p_value_is_worth_less():
    judged = judge([check(sure(0.05, p_value=0.02)) for _ in range(10)])
    assert {found.verdict for found in judged} == {"same"}
    assert {found.adjusted_p for found in judged} == {0.1}  # 10 * 0.02 / 2, one-sided


def test_checks_without_chance_do_not_change_the_others():
    identical = check(Estimate(0.0, 0.0, 0.0, 0.0, 1.0))
    exact = check(Estimate(0.0), is_exact=True)
    report = check(sure(0.5), is_gate=False)
    alone = judge([check(sure(0.05, p_value=0.02))])[0]
    judged = judge([check(sure(0.05, p_value=0.02)), *[identical, exact, report] * 20])
    assert judged[0] == alone and judged[0].adjusted_p == 0.01
    assert {found.adjusted_p for found in judged[1:]} == {None}


def test_each_gate_has_its_share_of_the_false_alarms():
    speeds = [check(sure(0.05, p_value=0.5)) for _ in range(8)]
    quality = replace(check(sure(0.05, p_value=0.01)), gate="quality")
    judged = judge([*speeds, quality])
    assert judged[-1].adjusted_p == pytest.approx(0.005 / (0.4 / 0.9)) and judged[-1].verdict == "worse"
    assert judge([quality])[0].adjusted_p == 0.005  # if nothing else can be red


def test_a_gain_is_no_sign_of_a_loss():
    (judged,) = judge([check(sure(-0.05, p_value=1e-6))])
    assert judged.adjusted_p > 0.99


@pytest.mark.parametrize("num_samples, floor", [(6, 0.0), (6, 0.025), (24, 0.0), (24, 0.05)])
def test_a_detectable_loss_is_found_as_often_as_promised(num_samples, floor):
    """By the error's true value, which a single run guesses: over many runs both average out."""
    rng, spread, num_checks, runs = np.random.default_rng(3), 0.02, 8, 1500
    unchanged = [check(Estimate(1e-4, 1e-2, -0.02, 0.02, 0.99)) for _ in range(num_checks - 1)]
    exact = check(Estimate(0.0, spread / np.sqrt(num_samples), -1.0, 1.0, 1.0), freedom=num_samples - 1, floor=floor)
    loss = judge([*unchanged, exact])[-1].detectable
    found = 0
    for _ in range(runs):
        estimate = student_mean(rng.normal(loss, spread, num_samples))
        judged = judge([*unchanged, check(estimate, freedom=num_samples - 1, floor=floor)])
        found += judged[-1].verdict == "worse"
    assert abs(found / runs - POWER) <= 3 * np.sqrt(POWER * (1 - POWER) / runs)


def test_with_nothing_changed_few_gates_are_red():
    rng, runs = np.random.default_rng(4), 2000
    red = 0
    for _ in range(runs):
        checks = [check(student_mean(rng.normal(0, 0.02, 6)), freedom=5) for _ in range(8)]
        red += any(found.verdict == "worse" for found in judge(checks))
    assert red / runs <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / runs)
    assert red / runs >= ALPHA / 3, "so few that losses are missed"
