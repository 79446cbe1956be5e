"""The noise floor of speeds, from cases that were measured twice."""

import numpy as np
import pytest
from scipy import stats
from support.close import assert_close
from support.measured_twice import RECIPES, measured, second, twice
from support.sample_records import write_records

from qbench.compare.rows import compare_with_baseline
from qbench.compare.side import Rows
from qbench.compare.speed_floor import Work, _floor, kept_speed_floors, work_of
from qbench.measure.records.record import Record


def write(tmp_path, rows):
    return str(write_records(tmp_path / "records.jsonl", rows))


def test_one_more_lies_within_in_95_percent_of_cases(tmp_path):
    factors = (1.01, 0.98, 1.0, 1.03)
    (floor,) = kept_speed_floors([write(tmp_path, twice(factors))]).values()
    spread = np.sqrt(np.mean(np.log(factors) ** 2))
    expected = np.expm1(stats.t.ppf(0.975, 4) * spread)
    assert_close([floor["pp_tok_s"], floor["tg_tok_s"]], [expected] * 2, rtol=1e-12)


@pytest.mark.parametrize("pairs", [4, 8])
def test_simulated_coverage(tmp_path, pairs):
    rng, held, runs = np.random.default_rng(pairs), 0, 4000
    for _ in range(runs):
        *logs, another = rng.normal(0, 0.02, pairs + 1)
        held += np.exp(abs(another)) - 1 <= _floor(logs)
    assert abs(held / runs - 0.95) < 3 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([measured(recipe) for recipe in RECIPES], id="none twice"),
        pytest.param(twice((1.0, 1.1, 1.0)), id="too few"),
        pytest.param(twice((1.0, 1.1, 1.0, 1.1), code="another"), id="by other code"),
        pytest.param(twice((1.0, 1.1, 1.0, 1.1), machine={"id": "another"}), id="on another machine"),
    ],
)
def test_what_tells_of_no_floor(tmp_path, rows):
    assert kept_speed_floors([write(tmp_path, rows)]) == {}


def test_a_difference_below_it_says_nothing_and_one_beyond_does(tmp_path):
    rows = twice((1.01, 0.98, 1.0, 1.03))
    rows[1] = measured(RECIPES[1], 0.96)
    rows[2] = measured(RECIPES[2], 0.5)
    rows[5], rows[6] = second(rows[1], 0.96 * 0.98), second(rows[2], 0.5)
    path = write(tmp_path, rows)
    (floors,) = kept_speed_floors([path]).values()
    assert floors["pp_tok_s"] > 0.04
    compared, _ = compare_with_baseline(Rows(path, {}), RECIPES[0])
    verdicts = {one.b.model_case.recipe: [cell for cell in one.cells if cell.metric == "pp_tok_s"] for one in compared}
    (within,), (beyond,) = verdicts[RECIPES[1]], verdicts[RECIPES[2]]
    assert (within.verdict, within.is_within_floor, beyond.verdict) == ("same", True, "worse")


def test_work_is_told_apart():
    def work(row) -> Work:
        return work_of(Record.from_json(row))

    a, b = measured("bf16"), measured("q8_0")
    assert work(a) == work(b)
    b["case"]["bench"] = b["case"]["bench"] | {"depth": 4096}
    assert work(a) != work(b)
    del b["case"]["threads"], b["case"]["bench"]
    assert work(b) == Work(b["machine"]["id"], None, 1, None, None, None)
