"""Checks that end early: the same sums, and no more false winners than promised."""

import random

import numpy as np
import pytest
from support.data import REPO

from qbench.measure.quality_figures import Blocks
from qbench.measure.records.record import read_records
from qbench.quality.evaluate import prepare
from qbench.search.search import choose
from qbench.search.validate import beats_all, compare, joined, look_ends, part_of
from qbench.sources import open_source
from qbench.statistics.estimate import ALPHA

WINDOWS = 24
SIZES = {"mix": (1, 0.1), "rival": (1, 0.1), "other": (1, 0.1)}


def test_looks_end_at_each_doubling():
    assert look_ends(24, exhaustive=False) == [6, 12, 24]
    assert look_ends(24, exhaustive=True) == [24]
    assert look_ends(12, exhaustive=False) == [6, 12] and look_ends(3, exhaustive=False) == [3]


def test_parts_are_the_whole():
    (scoring,) = prepare(open_source("ref:llama"), "A king and a queen had a son. " * 900, 5)
    parts = [part_of(scoring, 0, 2), part_of(scoring, 2, 5)]
    assert [part.num_blocks for part in parts] == [2, 3]
    values = np.arange(scoring.starts[-1], dtype=float)
    cut = int(scoring.starts[2])
    sums = [part.block_sums(some) for part, some in zip(parts, (values[:cut], values[cut:]), strict=True)]
    blocks = [
        Blocks("window", part.block_sizes.tolist(), kld=some.tolist()) for part, some in zip(parts, sums, strict=True)
    ]
    assert joined(blocks) == Blocks("window", scoring.block_sizes.tolist(), kld=scoring.block_sums(values).tolist())


def race(rng, factors) -> int | None:
    """Windows after which the mix counts as the best of all; None: it does not. factors: true KLD over the mix's"""
    # Windows differ several times over, and candidates share most of that, as in results/search.
    common = rng.lognormal(0, 0.7, WINDOWS)
    kld = {"mix": common * rng.lognormal(0, 0.3, WINDOWS)}
    kld |= {name: common * factor * rng.lognormal(0, 0.3, WINDOWS) for name, factor in factors.items()}
    ends = look_ends(WINDOWS, exhaustive=False)
    for end in ends:
        blocks = {name: Blocks("window", [1000] * end, kld=values[:end].tolist()) for name, values in kld.items()}
        if beats_all(compare(blocks, SIZES, "mix", num_looks=len(ends))):
            return end
    return None


@pytest.mark.parametrize(
    "races", [40, pytest.param(400, marks=pytest.mark.exhaustive("ten times the races of every run"))]
)
def test_a_mix_that_is_no_better_rarely_wins(races):
    rng = np.random.default_rng(7)
    wins = sum(race(rng, {"rival": 1.0}) is not None for _ in range(races))
    # Half of the two-sided errors are in favour of the mix; three standard errors of a share of so many races.
    bound = ALPHA / 2 + 3 * (ALPHA / 2 / races) ** 0.5
    assert wins / races <= bound


def test_a_clear_winner_needs_few_windows():
    rng = np.random.default_rng(8)
    ends = [race(rng, {"rival": 2.5, "other": 10.0}) for _ in range(6)]
    assert None not in ends and sum(ends) < len(ends) * WINDOWS / 2


def recorded(model: str) -> list[dict[str, Blocks]]:
    """Candidate -> its sums per window, in each committed search."""
    rows = [row for file in sorted((REPO / "results" / "search").glob("*.jsonl")) for row in read_records(file)]
    of_model = [row.metrics.candidates for row in rows if row.case.model == model and len(row.metrics.candidates) > 1]
    return [{each.name: each.blocks for each in candidates} for candidates in of_model]


@pytest.mark.parametrize("model", ["ref:llama", "ref:llama-8k", "ref:mla-moe"])
@pytest.mark.exhaustive("intervals of hundreds of looks")
def test_races_over_recorded_windows_write_the_same_as_the_exhaustive_check(model):
    """Any candidate takes the part of the mix, so that close races are among them. Windows change their order."""
    rng, searches, same, seen, total = random.Random(4), recorded(model), 0, 0, 0
    assert len(searches) >= 5
    for _ in range(20):
        blocks = rng.choice(searches)
        mix, *_ = some = rng.sample(sorted(blocks), rng.randint(2, min(4, len(blocks))))
        order = rng.sample(range(num := len(blocks[mix].tokens)), num)
        written = {}
        for is_whole in (False, True):
            ends = look_ends(num, is_whole)
            for end in ends:
                found = {name: cut(blocks[name], order[:end]) for name in some}
                measured = compare(found, dict.fromkeys(some, (1, 0.0)), mix, num_looks=len(ends))
                if beats_all(measured):
                    break
            written[is_whole] = choose(measured, mix)[0]
            seen += 0 if is_whole else end
        same, total = same + (written[False] == written[True]), total + num
    assert same >= 19
    assert seen < 0.8 * total


def cut(blocks: Blocks, places: list[int]) -> Blocks:
    return Blocks(blocks.unit, [blocks.tokens[i] for i in places], kld=[blocks.kld[i] for i in places])
