"""A task's entry in a record: its items' values, its figure's error, the hash of the items."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from lm_eval.api.metrics import mean, mean_stderr, perplexity, weighted_perplexity
from support.close import assert_close

from qbench.statistics.intervals import share_interval
from qbench.tasks.results import RESAMPLES, interval, item_values, standard_error, summarize_group, summarize_task


@pytest.mark.parametrize(
    "items, expected",
    [
        pytest.param([1.0, 0.0, True, 0], {"correct": "1010"}, id="right or wrong"),
        pytest.param([0.5, 1.0], {"values": [0.5, 1.0]}, id="shares"),
        pytest.param([-1.0, -math.inf], {"values": [-1.0, None]}, id="not finite"),
        pytest.param([(-3.5, 2), (-1.0, 4)], {"values": [-3.5, -1.0], "weights": [2, 4]}, id="weighted"),
        pytest.param([["a", "b", "c"]], {}, id="of all items alone"),
    ],
)
def test_values_of_items(items, expected):
    assert item_values(items) == expected


def test_error_of_a_mean_is_lm_evals():
    items = [1, 0, 0, 1, 1]
    assert_close(standard_error(items, mean), mean_stderr(items), rtol=2.0**-50)
    assert standard_error([1], mean) is None


def test_error_of_any_other_figure_is_resampled():
    items = list(np.random.default_rng(0).normal(-2, 0.5, 400))
    # exp(-mean) by the delta method; resampling has an error of 1 / sqrt(2 RESAMPLES) itself: four of them
    expected = perplexity(items) * np.std(items, ddof=1) / math.sqrt(len(items))
    assert_close(standard_error(items, perplexity), expected, rtol=4 / math.sqrt(2 * RESAMPLES))
    assert standard_error([(-2.0, 1), (-2.0, 1)], weighted_perplexity) == 0


def task(name: str = "t"):
    return SimpleNamespace(
        config=SimpleNamespace(task=name, num_fewshot=0),
        VERSION=1.0,
        OUTPUT_TYPE="multiple_choice",
        aggregation=lambda: {"acc": mean, "acc_norm": mean},
        higher_is_better=lambda: {"acc": True, "acc_norm": True},
    )


def samples(*accs: float, filter_name: str = "none") -> list[dict]:
    return [
        {
            "filter": filter_name,
            "metrics": ["acc_norm", "acc"],
            "acc": acc,
            "acc_norm": 0.0,
            "doc_hash": f"doc {index}",
            "target_hash": "target",
            "arguments": [(f"question {index}", " yes")],
        }
        for index, acc in enumerate(accs)
    ]


FIGURES = {"alias": "t", "acc,none": 0.5, "acc_stderr,none": "N/A", "acc_norm,none": math.nan}


def test_a_tasks_entry():
    entry = summarize_task(task(), [*samples(1.0, 0.0), *samples(0.0, 0.0, filter_name="other")], FIGURES).to_json()
    assert (entry["metric"], entry["value"], entry["error"], entry["correct"]) == ("acc", 0.5, 0.5, "10")
    assert entry["metrics"] == {"acc,none": 0.5, "acc_norm,none": None} and entry["num_items"] == 2


@pytest.mark.parametrize("right, ends", [(5, (0.5655, 1.0)), (0, (0.0, 0.4345)), (4, (0.3755, 0.9638))])
def test_five_items_have_an_interval_of_some_width(right, ends):
    """Wilson's for n = 5, as printed in tables of it; lm-eval's own error is 0 if all are right"""
    entry = summarize_task(task(), samples(*[1.0] * right, *[0.0] * (5 - right)), {"acc,none": right / 5}).to_json()
    assert_close(entry["interval"], ends, atol=5e-5)
    assert (entry["error"] == 0) == (right in (0, 5))


def test_only_shares_have_an_interval():
    assert interval([0.5, 1.0], 0.75) is None and interval([1, 0], None) is None
    assert interval([(-2.0, 1), (-2.0, 1)], 7.4) is None
    assert interval([1, 1, 0], 0.5) is None, "a group whose tasks weigh the same, whatever their items"


def test_a_figure_that_some_items_lack_is_not_paired():
    rows = samples(1.0, 0.0, 1.0)
    del rows[1]["acc"]
    entry = summarize_task(task(), rows, FIGURES).to_json()
    assert (entry["num_items"], entry["error"], entry.keys() & {"correct", "values"}) == (3, None, set())


@pytest.mark.parametrize("change", ["doc_hash", "target_hash", "arguments", "order"])
def test_other_items_are_another_protocol(change):
    plain, changed = samples(1.0, 0.0), samples(1.0, 0.0)
    if change == "order":
        changed.reverse()
    else:
        changed[0][change] = "another"
    first, second = (summarize_task(task(), rows, FIGURES).to_json() for rows in (plain, changed))
    assert first["protocol_hash"] != second["protocol_hash"]
    assert (first["items_sha256"] == second["items_sha256"]) == (change == "arguments")


def test_compute_is_part_of_the_protocol_if_it_was_chosen():
    ways = ((), ("fast",), ("exact",))
    plain, fast, exact = (summarize_task(task(), samples(1.0), FIGURES, *way).to_json() for way in ways)
    assert plain == fast and exact["protocol_hash"] != fast["protocol_hash"]
    assert exact["protocol"] == fast["protocol"] | {"compute": "exact"}


def test_a_group_has_the_items_of_its_tasks():
    entries = {
        "a": summarize_task(task("a"), samples(1, 0), FIGURES),
        "b": summarize_task(task("b"), samples(1), FIGURES),
    }
    group = summarize_group(entries, {"acc,none": 2 / 3, "alias": "group"}).to_json()
    assert (group["correct"], group["num_items"], group["value"]) == ("101", 3, 2 / 3)
    assert group["interval"] == list(share_interval(2, 3))
    swapped = summarize_group(dict(reversed(entries.items())), {"acc,none": 2 / 3}).to_json()
    assert swapped["items_sha256"] != group["items_sha256"]
    assert summarize_group(entries, {"alias": "group without a figure"}) is None


def of_length(length: int, *scores: float) -> list[dict]:
    """Samples as RULER's tasks give them: every item also has 4096, and -1 there if it is of another length."""
    return [
        {
            "filter": "none",
            "metrics": list(dict.fromkeys(("4096", str(length)))),
            "4096": -1.0,
            str(length): score,
            "doc_hash": f"{length} {index}",
            "target_hash": "t",
            "arguments": [],
        }
        for index, score in enumerate(scores)
    ]


@pytest.mark.parametrize("length", [900, 4096])
def test_a_task_by_length_is_known_by_a_length_that_it_has(length):
    ruler = task()
    ruler.aggregation = ruler.higher_is_better = dict
    found = summarize_task(ruler, of_length(length, 1.0, 0.0, 1.0), {"4096,none": -1, f"{length},none": 2 / 3})
    assert (found.metric, found.correct, found.higher_is_better) == (str(length), "101", True)
    assert found.metrics == {f"{length},none": 2 / 3}


def test_a_task_of_several_lengths_names_the_items_of_the_first():
    ruler = task()
    ruler.aggregation = ruler.higher_is_better = dict
    rows = of_length(900, 1.0, 0.0) + of_length(1800, 0.0)
    found = summarize_task(ruler, rows, {"4096,none": -1, "900,none": 0.5, "1800,none": 0.0})
    assert (found.metric, found.correct, found.num_items) == ("900", "10", 2)
    assert found.metrics == {"900,none": 0.5, "1800,none": 0.0}
