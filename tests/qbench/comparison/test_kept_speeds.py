"""Kept rows of one code whose runs differ: how often `compare` calls their speeds different (A/A), and finds a loss."""

from importlib import import_module

import numpy as np
import pytest
from support.measured_twice import measured
from support.row_comparison import compare_rows

SEED = 20240217
FALSE = 0.05  # verdicts of A/A at most
ROUNDS = 8
JITTER = 0.003  # from round to round of one process
TOKENS = {"pp": 512, "tg": 64}


def row(rng: np.random.Generator, shift: float, launches: int, factor: float = 1.0) -> dict:
    """A kept row. shift: standard deviation of the common shift of a launch's rounds; launches 0: one process"""
    runs = [_rounds(rng, shift, factor) for _ in range(max(1, launches))]
    first = {f"{phase}_tok_s": (TOKENS[phase] / seconds).tolist() for phase, seconds in runs[0].items()}
    found = measured("q8_0")
    found["metrics"] |= {"samples": first, **{name: float(np.median(rates)) for name, rates in first.items()}}
    if launches:
        kept = [{phase: [seconds.tolist()] for phase, seconds in run.items()} for run in runs]
        found["metrics"]["launches"] = kept
    return found


def _rounds(rng: np.random.Generator, shift: float, factor: float) -> dict[str, np.ndarray]:
    run = rng.normal(0, shift)
    return {phase: np.exp(run + rng.normal(0, JITTER, ROUNDS)) / factor for phase in TOKENS}


def share_of_verdicts(shift: float, launches: int, runs: int, factor: float = 1.0) -> float:
    """The share of tables with any speed that is "better" or "worse"."""
    rng, found = np.random.default_rng(SEED), 0
    for _ in range(runs):
        cells = compare_rows(row(rng, shift, launches), row(rng, shift, launches, factor)).cells
        found += any(cell.verdict in ("better", "worse") for cell in cells if cell.metric in ("pp_tok_s", "tg_tok_s"))
    return found / runs


def slack(runs: int) -> float:
    return 3 * np.sqrt(FALSE * (1 - FALSE) / runs)


@pytest.mark.parametrize("shift", [0.02, 0.05, 0.1])
def test_runs_of_one_process_have_no_false_verdicts(shift):
    assert share_of_verdicts(shift, 0, 20) == 0


@pytest.mark.parametrize("launches", [3, 5, 8])
@pytest.mark.parametrize("shift", [0.02, 0.05, 0.1])
def test_runs_of_several_launches_have_few(shift, launches):
    assert share_of_verdicts(shift, launches, 200) <= FALSE + slack(200)


@pytest.mark.exhaustive("two thousand tables per case, a minute each")
@pytest.mark.parametrize("launches", [2, 3, 5, 8])
@pytest.mark.parametrize("shift", [0.02, 0.05, 0.1])
def test_runs_of_several_launches_have_few_of_many_tables(shift, launches):
    assert share_of_verdicts(shift, launches, 2000) <= FALSE + slack(2000)


def test_the_samples_of_one_process_each_would_raise_false_alarms(monkeypatch):
    """The reason for the rule: judged by their own samples, runs that differ by 5 % are called different."""
    monkeypatch.setattr(import_module("qbench.comparison.comparison"), "ONE_LAUNCH", None)
    rng, found, runs = np.random.default_rng(SEED), 0, 50
    for _ in range(runs):
        cells = compare_rows(row(rng, 0.05, 0), row(rng, 0.05, 0)).cells
        found += any(cell.estimate.p_value < FALSE for cell in cells if cell.metric == "pp_tok_s")
    assert found / runs > 0.3


def test_a_true_loss_is_found():
    assert share_of_verdicts(0.02, 8, 100, factor=0.9) > 0.9


def test_two_launches_of_one_side_are_no_spread_of_the_other():
    rng = np.random.default_rng(SEED)
    cells = {cell.metric: cell for cell in compare_rows(row(rng, 0.02, 5), row(rng, 0.02, 0)).cells}
    assert cells["pp_tok_s"].verdict is None and "one process" in cells["pp_tok_s"].note
