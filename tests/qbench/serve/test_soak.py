"""Hostile requests among normal ones; `python -m support.soak` sends 10,000."""

import pytest
from support.soak import FAULTS, MOST_GROWTH, run


@pytest.mark.exhaustive("half a minute")
def test_hostile_requests_harm_no_normal_one():
    row = run(num_hostile=300, num_clients=8, seed=1)
    assert row["hostile"] == 300 and row["normal"] >= 8
    assert {name: row[name] for name in FAULTS} == dict.fromkeys(FAULTS, 0), row
    assert 500 not in row["statuses"] and row["memory_growth"] <= MOST_GROWTH, row
