"""Hostile requests among normal ones; `python -m support.soak` sends 10,000."""

import pytest
from support.soak import broken_rules, run


@pytest.mark.exhaustive("half a minute")
def test_hostile_requests_harm_no_normal_one(tmp_path):
    row = run(300, 8, 1, tmp_path / "log")
    assert row["hostile"] == 300 and row["normal"] >= 8
    assert not broken_rules(row), row
