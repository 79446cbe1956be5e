"""When an alternative pays: the whole interval is above 1, and no larger size says otherwise."""

import pytest

from qbench.breakeven import Answer, Point


def point(size: int, low: float | None) -> Point:
    return Point(size, "fast", None if low is None else low + 0.1, low, None if low is None else low + 0.2)


@pytest.mark.parametrize(
    "lows, pays_from, below",
    [
        ({1: 0.5, 2: 1.1, 4: 1.2}, 2, 1),
        ({1: 1.1, 2: 1.1}, 1, None),
        ({1: 0.5, 2: 1.0}, None, 2),
        ({1: 1.1, 2: 0.9, 4: 1.3}, 4, 2),  # 1 pays by chance, and does not count
        ({4: 1.3, 2: 0.9}, 4, 2),  # in any order
        ({1: 1.1, 2: None}, None, 2),  # no setting, or too few samples
    ],
)
def test_a_setting_pays_from_its_lowest_interval_above_one(lows, pays_from, below):
    answer = Answer.of("fast", [point(size, low) for size, low in lows.items()])
    assert (answer.pays_from, answer.below) == (pays_from, below)
    assert [each.size for each in answer.points] == sorted(lows)


def test_an_interval_around_one_is_off():
    assert Point(1, "fast", 1.3, 0.99, 1.6).verdict == "off"
    assert Point(1, "fast", 1.3, 1.01, 1.6).verdict == "on"
    assert Point(1, "fast", 1.3).verdict == "off"  # one sample has no interval
