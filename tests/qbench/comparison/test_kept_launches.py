"""Speeds of rows that several launches measured: joined, pooled, judged."""

import numpy as np
import pytest
from scipy import stats
from support.close import assert_close
from support.measured_twice import RECIPES, measured, second, twice
from support.sample_records import write_records

from qbench.comparison.kept_launches import Work, kept_launches, work_of
from qbench.comparison.rows import compare_with_baseline
from qbench.comparison.side import Rows
from qbench.measure.records.record import Record
from qbench.statistics.launches import LaunchedSpeed, launched_ratio, launched_speeds

FACTORS = (1.01, 0.98, 1.0, 1.03)
SEED = 20240217
FALSE = 0.05


def write(tmp_path, rows):
    return str(write_records(tmp_path / "records.jsonl", rows))


def on_processors(rows: list[dict], first: str | None, second: str) -> list[dict]:
    """The rows with the processor of their first launch, and of the others."""
    for row in rows:
        processor = second if row["case"].get("kind") else first
        row["machine"] = row["machine"] | ({"processor": processor} if processor else {})
    return rows


def speed_of(path: str, row: dict, phase: str = "pp_tok_s") -> LaunchedSpeed:
    return kept_launches([path])[row["key"], row["machine"]["id"], row["code"]][phase]


def test_the_interval_is_of_the_pooled_spread(tmp_path):
    rows = twice(FACTORS)
    found = speed_of(write(tmp_path, rows), rows[0])
    spread = np.sqrt(np.mean(np.log(FACTORS) ** 2 / 2))  # two values: half the square of their difference
    half = stats.t.ppf(0.975, 4) * spread / np.sqrt(2)
    middle = np.sqrt(5000.0 * 5000.0 * 1.01)
    estimate = found.estimate
    assert (found.num_launches, found.freedom) == (2, 4)
    assert_close([estimate.value, *estimate.interval], middle * np.exp([0, -half, half]), rtol=1e-12)


def test_a_row_that_names_no_processor_has_the_launches_of_any(tmp_path):
    rows = on_processors(twice(FACTORS), None, "family 26")
    assert speed_of(write(tmp_path, rows), rows[0]).num_launches == 2


def test_a_third_launch_and_a_row_of_one(tmp_path):
    rows = [measured(recipe) for recipe in RECIPES[:2]]
    third = second(rows[0], 0.97)
    third["case"] |= {"launch": 3}
    path = write(tmp_path, [*rows, second(rows[0], 1.02), third | {"key": "third"}])
    several, one = (speed_of(path, row) for row in rows)
    assert (several.num_launches, one.num_launches, several.freedom, one.freedom) == (3, 1, 2, 2)
    assert_close([one.error], [several.error * np.sqrt(3)], rtol=1e-12)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([measured(recipe) for recipe in RECIPES], id="one launch"),
        pytest.param(twice(FACTORS, code="another"), id="by other code"),
        pytest.param(twice(FACTORS, machine={"id": "another"}), id="on another machine"),
        pytest.param(on_processors(twice(FACTORS), "family 25", "family 26"), id="on another processor of that id"),
    ],
)
def test_rows_without_further_launches_have_no_interval(tmp_path, rows):
    assert kept_launches([write(tmp_path, rows)]) == {}


def test_compare_judges_by_the_spread(tmp_path):
    rows = [measured(recipe, speed) for recipe, speed in zip(RECIPES, (1.0, 0.97, 0.5, 1.0), strict=True)]
    again = [second(row, row["metrics"]["pp_tok_s"] / 5000 * by) for row, by in zip(rows, FACTORS, strict=True)]
    compared, _ = compare_with_baseline(Rows(write(tmp_path, [*rows, *again]), {}), RECIPES[0])
    cells = {one.b.model_case.recipe: cell for one in compared for cell in one.cells if cell.metric == "pp_tok_s"}
    assert [cells[recipe].verdict for recipe in RECIPES[1:]] == ["same", "worse", "same"]
    assert cells[RECIPES[1]].detectable is not None and "spread between launches" in cells[RECIPES[1]].note


@pytest.mark.parametrize("shift", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("launches", [(2, 2), (3, 1)], ids=str)
def test_false_verdicts_are_as_rare_as_stated(shift, launches):
    """A/A: eight rows of equal speed; the ratio of the first two, each launch a process that is off by `shift`."""
    rng, runs, false = np.random.default_rng(SEED), 2000, 0
    for _ in range(runs):
        counts = [*launches, *(launches[0] for _ in range(6))]
        a, b, *_ = launched_speeds([np.exp(rng.normal(0, shift, count)) for count in counts])
        false += launched_ratio(a, b).p_value < FALSE
    assert false / runs <= FALSE + 3 * np.sqrt(FALSE * (1 - FALSE) / runs)


def test_different_work_is_distinguished():
    def work(row) -> Work:
        return work_of(Record.from_json(row))

    a, b = measured("bf16"), measured("q8_0")
    assert work(a) == work(b)
    b["case"]["bench"] = b["case"]["bench"] | {"depth": 4096}
    assert work(a) != work(b)
    del b["case"]["threads"], b["case"]["bench"]
    assert work(b) == Work(b["machine"]["id"], None, None, 1, None, None, None)


def launches_of_row(speeds: list[float], others: list[list[float]]) -> tuple[LaunchedSpeed, LaunchedSpeed]:
    """The row of these launches, and the first of the others."""
    found = launched_speeds([speeds, *others])
    assert found is not None
    return found[0], found[1]


def test_a_row_of_five_launches_that_differ_more_keeps_its_own_spread():
    calm, wild = [100.0, 101.0, 99.0, 100.5, 99.5], [100.0, 130.0, 80.0, 115.0, 90.0]
    one, other = launches_of_row(wild, [calm] * 3)
    t = stats.t.ppf(0.975, 4) * np.std(np.log(wild), ddof=1) / np.sqrt(5)
    assert_close(one.estimate.interval, np.exp(np.mean(np.log(wild)) + t * np.array([-1, 1])), rtol=1e-12)
    assert (one.freedom, other.freedom) == (4, 16)
    assert other.error > np.std(np.log(calm), ddof=1) / np.sqrt(5)  # the pooled spread counts the wild row, too


def test_four_launches_share_the_pooled_spread():
    calm, wild = [100.0, 101.0, 99.0, 100.5], [100.0, 130.0, 80.0, 115.0]
    one, other = launches_of_row(wild, [calm] * 3)
    assert (one.freedom, one.error) == (other.freedom, other.error) == (12, one.error)
