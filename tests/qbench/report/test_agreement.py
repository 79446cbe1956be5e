"""Whether one model's order of recipes predicts another's, on records whose losses are made up."""

import json

import numpy as np
import pytest
from scipy.stats import kendalltau
from support.policy_records import policy_record
from support.sample_records import SWEEP, write_records

from qbench.measure.records.record import parse_record
from qbench.report import render_named
from qbench.report.agreement import agreement, kendall_tau, rankings_of
from quant.errors import InputError

RECIPES = list(SWEEP)


def records(model: str, losses: list[float], text: str | None = None) -> list[dict]:
    """One row per recipe of `losses`, whose intervals reach 10 % to either side."""
    rows = []
    for recipe, loss in zip(RECIPES, losses, strict=False):
        row = policy_record("full", loss, 1000, 100.0, model=model, recipe=recipe, kv_format="f32")
        row["case"]["eval"]["text"] = text
        row["key"] += f" {text}"
        rows.append(row)
    return rows


def rankings(*rows: dict):
    return rankings_of(parse_record(json.dumps(row).encode()) for row in rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [4, 1000])
def test_tau_is_that_of_scipy_with_and_without_ties(seed, levels):
    rng = np.random.default_rng(seed)
    x = rng.integers(levels, size=25).astype(float)
    y = x + rng.integers(levels, size=25)
    got = kendall_tau(x, y)
    assert got.value == pytest.approx(kendalltau(x, y).statistic, abs=1e-12)
    assert got.low < got.value < got.high


def test_the_same_order_gives_one_and_the_opposite_minus_one():
    x = np.arange(20.0)
    assert kendall_tau(x, x**3).value == kendall_tau(x, x**3).low == pytest.approx(1.0)
    assert kendall_tau(x, -x).value == kendall_tau(x, -x).high == pytest.approx(-1.0)


def test_a_reversed_pair_is_clear_if_its_intervals_are_apart_in_both_orders():
    losses = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    far = [0.2, 0.1, *losses[2:]]  # clearly reversed
    near = [*losses[:6], 0.705, 0.7]  # the last two are reversed within their intervals
    a, b, c = rankings(*records("ref:a", losses), *records("ref:b", far), *records("ref:c", near))
    by_far, by_near = agreement(a, b), agreement(a, c)
    assert (by_far.reversed, by_far.clear, by_far.num_pairs) == (1, 1, 28)
    assert (by_near.reversed, by_near.clear) == (1, 0)
    assert by_far.tau.value == pytest.approx(1 - 2 / 28)


def test_each_text_of_a_model_has_an_order(tmp_path):
    losses = [0.1 * (i + 1) for i in range(8)]
    rows = [*records("real:x", losses, "real:books"), *records("real:x", losses[::-1], "real:tales")]
    text = render_named("--agreement", write_records(tmp_path / "records.jsonl", rows))
    assert "| real:x, books | real:x, tales |" in text and "-1.00 [-1.00, -1.00]" in text
    assert "28 of 28" in text and f"{RECIPES[-1]} 8 to 1" in text and f"{RECIPES[0]} 1 to 8" in text


def test_too_few_shared_recipes_are_no_pair(tmp_path):
    rows = [*records("ref:a", [0.1, 0.2, 0.3, 0.4]), *records("ref:b", [0.1, 0.2, 0.3, 0.4])]
    path = write_records(tmp_path / "records.jsonl", rows)
    with pytest.raises(InputError, match="two models or texts with six recipes in common"):
        render_named("--agreement", path)


def test_a_recipe_in_another_kv_format_is_another_entry():
    losses = [0.1 * (i + 1) for i in range(8)]
    rows = records("ref:a", losses)
    again = [policy_record("full", 1.0, 1000, 100.0, model="ref:a", recipe=RECIPES[0], kv_format="kv-int4")]
    (ranking,) = rankings(*rows, *again)
    assert len(ranking.rows) == 9 and f"{RECIPES[0]} with kv-int4" in ranking.rows
