import numpy as np
import pytest

from qbench.report.table import pareto_front


def loop_front(costs):
    """The definition, word by word."""
    on = []
    for i, point in enumerate(costs):
        beaten = any(
            all(a <= b for a, b in zip(other, point, strict=True))
            and any(a < b for a, b in zip(other, point, strict=True))
            for j, other in enumerate(costs)
            if j != i
        )
        on.append(not beaten)
    return on


@pytest.mark.parametrize("num_costs", [1, 2, 3])
def test_equals_the_definition(num_costs):
    rng = np.random.default_rng(num_costs)
    for _ in range(30):
        costs = rng.integers(0, 6, size=(12, num_costs)).astype(float)  # few values, so that there are ties
        assert pareto_front(costs).tolist() == loop_front(costs.tolist())


def test_an_unmeasured_row_is_on_no_front_and_beats_no_other():
    costs = np.array([[np.nan, 0.0], [1.0, 1.0], [2.0, np.nan]])
    assert pareto_front(costs).tolist() == [False, True, False]


def test_equal_points_share_the_front():
    assert pareto_front(np.array([[1.0, 2.0], [1.0, 2.0]])).all()


def test_no_points():
    assert pareto_front(np.empty((0, 2))).tolist() == []
