"""How often intervals of few windows hold the truth, if windows are those of the README's table: docs/statistics.md."""

import re
from pathlib import Path

import numpy as np

from qbench.measure.metrics import Metrics
from qbench.measure.records.record import latest, read_files
from qbench.statistics.intervals import block_mean
from quant.present import present

ROOT = Path(__file__).parents[3]
RUNS = 500
PROMISE = re.compile(
    r"(\d+) windows drawn from the 24 of the README's table hold the truth in (\d+) to (\d+) % of cases"
)


def shares_held(num_windows: int) -> list[float]:
    """One share per recipe; windows are drawn with replacement, so that the mean of all is the true divergence."""
    rng, shares = np.random.default_rng(0), []
    for record in latest(read_files(ROOT / "results/quickstart")).values():
        if not isinstance(record.metrics, Metrics):
            continue  # of a noise floor
        if record.metrics.quality is None:
            continue  # of speeds
        blocks = present(record.metrics.quality.blocks)
        kld, tokens = np.asarray(blocks.kld), np.asarray(blocks.tokens)
        truth, held = kld.sum() / tokens.sum(), 0
        for _ in range(RUNS):
            drawn = rng.integers(len(kld), size=num_windows)
            found = block_mean(kld[drawn], tokens[drawn])
            held += found.low is not None and found.low <= truth <= present(found.high)
        shares.append(held / RUNS)
    return shares


def test_the_page_documents_the_coverage_of_few_windows(monkeypatch):
    monkeypatch.setattr("qbench.statistics.intervals.RESAMPLES", 999)
    promises = PROMISE.findall((ROOT / "docs/statistics.md").read_text())
    assert [int(number) for number, _, _ in promises] == [8, 16]
    for number, low, high in promises:
        shares = shares_held(int(number))
        assert (round(100 * min(shares)), round(100 * max(shares))) == (int(low), int(high))
