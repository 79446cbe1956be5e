"""Tasks of two rows: which way is worse, however the figure is made of its items."""

import math

import numpy as np
import pytest
from lm_eval.api.metrics import bits_per_byte, mean, perplexity, weighted_perplexity
from support.close import assert_close
from support.paired_records import measured_record
from support.row_comparison import compare_rows

from qbench.comparison.task_cells import IN_ITS_TASKS, task_cells
from qbench.measure.quality_figures import TaskResult
from qbench.statistics.cell import Flips

RNG = np.random.default_rng(0)
LIKELIHOODS = RNG.normal(-40.0, 8.0, 50)  # of documents, nats
WORDS = RNG.integers(5, 60, 50).tolist()
LOSS = RNG.normal(0.02, 0.002, 50)  # nats a word


def right_or_wrong(correct: str, **protocol) -> dict:
    value = correct.count("1") / len(correct)
    about = {"metric": "acc", "value": value, "higher_is_better": True, "correct": correct}
    return about | {"protocol": {"num_fewshot": 0, **protocol}, "protocol_hash": str(protocol)}


def valued(values, value: float | None, **more) -> dict:
    about = {"metric": "loss", "value": value, "higher_is_better": False, "values": list(values)}
    return about | {"protocol": {}, "protocol_hash": ""} | more


def compared(one: dict, other: dict):
    left_out: list[str] = []
    return task_cells({"t": TaskResult.from_json(one)}, {"t": TaskResult.from_json(other)}, left_out), left_out


def compared_rows(a: dict, b: dict):
    comparison = compare_rows(measured_record("bf16", tasks=a), measured_record("q4_0", tasks=b))
    return {cell.metric: cell for cell in comparison.cells}, comparison.left_out


def test_right_or_wrong_item_by_item():
    cells, left_out = compared_rows(
        {"skill": right_or_wrong("1" * 80 + "0" * 20), "other": right_or_wrong("10")},
        {"skill": right_or_wrong("1" * 60 + "0" * 40), "other": right_or_wrong("10", num_fewshot=5)},
    )
    assert (cells["skill"].verdict, cells["skill"].flips) == ("worse", Flips(20, 0, 100))
    assert left_out == ["other: unlike tasks (num_fewshot (0 and 5))"]


@pytest.mark.parametrize(
    "aggregate, kind, change",
    [
        pytest.param(weighted_perplexity, "ratio", lambda a, b: b / a, id="perplexity by word"),
        pytest.param(bits_per_byte, "difference", lambda a, b: b - a, id="bits by byte"),
    ],
)
@pytest.mark.parametrize("sign, verdict", [(1, "worse"), (-1, "better")])
def test_likelihoods_of_documents_weigh_by_their_words(aggregate, kind, change, sign, verdict):
    def task(values) -> dict:
        items = list(zip(values.tolist(), WORDS, strict=True))
        return valued(values.tolist(), aggregate(items), weights=WORDS, metric=aggregate.__name__)

    a, b = task(LIKELIHOODS), task(LIKELIHOODS - sign * LOSS * WORDS)
    cells, _ = compared_rows({"t": a}, {"t": b})
    cell = cells["t"]
    assert (cell.verdict, cell.kind, cell.num_blocks) == (verdict, kind, 50)
    assert_close(cell.estimate.value, change(a["value"], b["value"]), rtol=1e-9)
    assert cell.estimate.low < cell.estimate.value < cell.estimate.high
    assert (cell.a, cell.b) == (a["value"], b["value"])


@pytest.mark.parametrize("higher_is_better, verdict", [(True, "better"), (False, "worse")])
def test_a_mean_is_better_in_the_direction_of_the_task(higher_is_better, verdict):
    values = LIKELIHOODS + LOSS
    one, other = (valued(items, mean(items), higher_is_better=higher_is_better) for items in (LIKELIHOODS, values))
    cells, _ = compared_rows({"t": one}, {"t": other})
    assert (cells["t"].verdict, cells["t"].unit) == (verdict, "loss")
    assert_close(cells["t"].estimate.value, LOSS.mean(), rtol=1e-9)


def test_a_perplexity_of_unweighted_items():
    """Its items are likelihoods, of which more is better, though a lower perplexity is."""
    one, other = (valued(items, perplexity(items)) for items in (LIKELIHOODS / 10, LIKELIHOODS / 10 - LOSS))
    cells, _ = compared_rows({"t": one}, {"t": other})
    assert (cells["t"].verdict, cells["t"].kind) == ("worse", "ratio")
    assert_close(cells["t"].estimate.value, math.exp(LOSS.mean()), rtol=1e-9)


def test_shares_that_are_all_0_or_1_on_one_side_are_still_paired():
    shares = [1.0] * 30 + [0.75] * 30 + [0.5] * 4
    one = valued([], 1.0, correct="1" * 64, higher_is_better=True)
    (cell,), left_out = compared(one, valued(shares, mean(shares), higher_is_better=True))
    assert not left_out and cell.estimate.high < 0
    assert_close(cell.estimate.value, mean(shares) - 1)


@pytest.mark.parametrize(
    "a, b, why",
    [
        pytest.param(
            valued([0.5, 0.2], 0.35),
            valued([None, 0.2], None),
            "loss of 1 of 2 items of B is not finite",
            id="infinite",
        ),
        pytest.param(valued([1.5, 2.0], 2.0), valued([1.0, 2.0], 2.0), "how loss follows", id="no known figure"),
        pytest.param(
            valued([1.5], 1.5, higher_is_better=None), valued([1.0], 1.0), "which way is better", id="no direction"
        ),
        pytest.param(valued([], 1.0), valued([1.0], 1.0), "without its items", id="no items"),
        pytest.param(
            valued([-3.0], 1.0, weights=[2]), valued([-3.0], 1.0, weights=[3]), "unlike number or weight", id="weights"
        ),
    ],
)
def test_figures_that_cannot_be_compared_are_left_out(a, b, why):
    cells, left_out = compared(a, b)
    assert not cells and len(left_out) == 1 and why in left_out[0]


def test_a_group_and_its_tasks_count_their_items_once():
    tasks = {"a": right_or_wrong("1" * 40), "b": right_or_wrong("10" * 20)}
    worse = {"a": right_or_wrong("0" * 20 + "1" * 20), "b": tasks["b"]}
    members = {name: task["protocol_hash"] for name, task in tasks.items()}
    both = ("".join(task["correct"] for task in side.values()) for side in (tasks, worse))
    groups = [right_or_wrong(correct, tasks=members) for correct in both]
    alone, _ = compared_rows(tasks, worse)
    cells, _ = compared_rows({"both": groups[0], **tasks}, {"both": groups[1], **worse})
    assert (cells["both"].verdict, cells["both"].holm_p_value, cells["both"].note) == (None, None, IN_ITS_TASKS)
    assert cells["both"].estimate.low is not None
    for name in tasks:
        assert (cells[name].verdict, cells[name].holm_p_value) == (alone[name].verdict, alone[name].holm_p_value)
    only, _ = compared_rows({"both": groups[0]}, {"both": groups[1]})
    assert only["both"].verdict == "worse"
