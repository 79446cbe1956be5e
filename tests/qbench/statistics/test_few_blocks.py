"""Intervals of a mean divergence from few windows: the share that hold the truth, and the warning next to them."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.coverage import BLOCKS, bounds, of_blocks, share_held
from support.paired_records import measured_record
from support.row_comparison import compare_rows

from qbench.statistics.estimate import ENOUGH_BLOCKS

RUNS = 1000
STATED = (Path(__file__).parents[3] / "docs" / "statistics.md").read_text()
SERIES = "divergence of q6_k", "divergence of q4_0"


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr("qbench.statistics.intervals.RESAMPLES", 999)


@pytest.mark.parametrize("series", SERIES)
def test_windows_without_a_warning_hold_the_truth_as_often_as_promised(series):
    least, _ = bounds(RUNS)
    assert share_held(partial(of_blocks, BLOCKS[series], ENOUGH_BLOCKS), RUNS) >= least


@pytest.mark.exhaustive("a third of a second per kind of blocks; the rarest are above")
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_fewest_windows_without_a_warning_hold_their_documented_coverage(kind):
    low, high = 0.92, 0.97
    slack = 3 * np.sqrt(0.05 * 0.95 / RUNS)
    assert low - slack <= share_held(partial(of_blocks, BLOCKS[kind], ENOUGH_BLOCKS), RUNS) <= high + slack
    assert f"{ENOUGH_BLOCKS} windows hold the truth in {100 * low:.0f} to {100 * high:.0f} %" in STATED


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
