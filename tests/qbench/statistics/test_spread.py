from qbench.statistics.intervals import spread


def test_spread_is_not_moved_by_one_slow_sample():
    assert spread([10.0, 11.0, 12.0, 13.0, 1.0]) == {"median": 11.0, "min": 1.0, "max": 13.0, "mad": 1.0}
