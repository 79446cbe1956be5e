"""Intervals of a mean divergence from few windows: the share that hold the truth, and the warning next to them."""

from functools import partial

import pytest
from support.coverage import BLOCKS, bounds, of_blocks, share_held
from support.paired_records import measured_record
from support.row_comparison import compare_rows

from qbench.compare.comparison import ENOUGH_BLOCKS

RUNS = 1000
SERIES = "divergence of q6_k", "divergence of q4_0"


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr("qbench.statistics.studentized.RESAMPLES", 999)


@pytest.mark.parametrize("series", SERIES)
def test_windows_without_a_warning_hold_the_truth_as_often_as_promised(series):
    least, _ = bounds(RUNS)
    assert share_held(partial(of_blocks, BLOCKS[series], ENOUGH_BLOCKS), RUNS) >= least


def test_windows_with_a_warning_hold_it_less_often():
    least, _ = bounds(RUNS)
    assert share_held(partial(of_blocks, BLOCKS["divergence of q4_0"], 5), RUNS) < least


def test_few_windows_are_warned_of():
    def cut(row: dict, windows: int) -> dict:
        blocks = row["metrics"]["blocks"]
        short = {name: value[:windows] if isinstance(value, list) else value for name, value in blocks.items()}
        return row | {"metrics": row["metrics"] | {"blocks": short}}

    def notes(windows: int) -> list[str]:
        rows = (cut(measured_record(recipe, seed=seed), windows) for recipe, seed in (("bf16", 0), ("q4_0", 1)))
        return [cell.note or "" for cell in compare_rows(*rows).cells if cell.metric in ("perplexity", "kld")]

    assert all("only 5 " in note and "more often than it says" in note for note in notes(5))
    assert not any(notes(ENOUGH_BLOCKS))
