"""From lm-eval's results to a record: one figure per task, and the value of each item."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypedDict

import numpy as np

from qbench.measure.quality_figures import TaskResult
from qbench.measure.records.migrate import protocol_identity
from qbench.run.choices import FAST
from qbench.statistics.intervals import share_interval

# The main figure of a task that has several: the first of these, else the first that it lists.
MAIN_METRICS = ("acc", "exact_match", "word_perplexity")
OTHER_LENGTH = -1
RESAMPLES = 200  # an error's own error is then 5 %
SEED = 20250211


def summarize_task(
    task: Any,
    samples: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Any],
    compute: str = FAST,
    question: str | None = None,
) -> TaskResult:
    """A task's entry under `metrics.tasks`.

    samples   lm-eval's, one per item and filter
    metrics   lm-eval's results of the task
    compute   of the loaded model; part of the protocol if it is not fast
    question  one of settings.QUESTIONS; part of the protocol if it is given
    """
    filter_name = samples[0]["filter"]
    rows = [sample for sample in samples if sample["filter"] == filter_name]
    names = [name for name in measured_metrics(rows) if f"{name},{filter_name}" in metrics]
    metric = next((name for name in MAIN_METRICS if name in names), names[0])
    if metric.isdigit():
        rows = [row for row in rows if row.get(metric, OTHER_LENGTH) != OTHER_LENGTH]
    items = [row.get(metric) for row in rows]
    is_of_all = all(item is not None for item in items)  # else a task left the figure out for some of its items
    protocol = {
        "task": task.config.task,
        "version": task.VERSION,
        "output_type": task.OUTPUT_TYPE,
        "num_fewshot": task.config.num_fewshot,
        "metric": metric,
        "filter": filter_name,
        "num_items": len(rows),
        "items_sha256": _sha256([[row["doc_hash"], row["target_hash"]] for row in rows]),
        "requests_sha256": _sha256([row["arguments"] for row in rows]),
        **({} if compute == FAST else {"compute": compute}),
        **({} if question is None else {"question": question}),
    }
    value = finite(metrics[f"{metric},{filter_name}"])
    return TaskResult(
        metric=metric,
        value=value,
        error=standard_error(items, task.aggregation().get(metric, fmean)) if is_of_all and value is not None else None,
        interval=interval(items, value) if is_of_all else None,
        num_items=len(rows),
        items_sha256=protocol["items_sha256"],
        **item_values(items),
        higher_is_better=True if metric.isdigit() else task.higher_is_better().get(metric),
        metrics={f"{name},{filter_name}": finite(metrics[f"{name},{filter_name}"]) for name in names},
        protocol=protocol,
        protocol_hash=_sha256(protocol_identity(protocol))[:16],
    )


def measured_metrics(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of a task's metrics, without those of lengths that no item has.

    RULER has a metric per length in tokens, named "4096". It is OTHER_LENGTH, or missing, in items of other lengths.
    """
    names = dict.fromkeys(name for row in rows for name in row["metrics"])
    return [
        name for name in names if not name.isdigit() or any(row.get(name, OTHER_LENGTH) != OTHER_LENGTH for row in rows)
    ]


def summarize_group(entries: dict[str, TaskResult], metrics: dict[str, float]) -> TaskResult | None:
    """The entry of a group: its tasks' items in a row, valued as the group says; None if it has no figure.

    entries   task -> its entry, in the group's order
    """
    first = next(iter(entries.values()))
    metric, filter_name = first.metric, (first.protocol or {})["filter"]
    value = metrics.get(f"{metric},{filter_name}")
    parts = [entry.correct for entry in entries.values() if entry.correct is not None and entry.metric == metric]
    if value is None or len(parts) < len(entries):
        return None
    protocol = {"tasks": {name: entry.protocol_hash for name, entry in entries.items()}, "metric": metric}
    correct = "".join(parts)
    items = [int(digit) for digit in correct]
    return TaskResult(
        metric=metric,
        value=finite(value),
        error=_mean_error(items),
        interval=interval(items, finite(value)),
        num_items=len(correct),
        items_sha256=_sha256([entry.items_sha256 for entry in entries.values()]),
        correct=correct,
        higher_is_better=first.higher_is_better,
        metrics={name: finite(number) for name, number in metrics.items() if _is_figure(name, number)},
        protocol=protocol,
        protocol_hash=_sha256(protocol_identity(protocol))[:16],
    )


class ItemValues(TypedDict, total=False):
    """Fields of a TaskResult that hold the value of each item."""

    correct: str
    values: list[float | None]
    weights: list[float | None]


def item_values(items: Sequence[Any]) -> ItemValues:
    """`correct`, a digit per item, if all are 0 or 1; else `values`, and `weights` if items weigh unequally.

    {} where an item is neither a number nor a pair of them: such a metric means something of all items alone
    """
    if _are_numbers(items) and all(item in (0, 1) for item in items):
        return {"correct": "".join(str(int(item)) for item in items)}
    if _are_numbers(items):
        return {"values": [finite(item) for item in items]}
    if all(isinstance(item, list | tuple) and len(item) == 2 and _are_numbers(item) for item in items):
        values, weights = zip(*items, strict=True)
        return {"values": [finite(value) for value in values], "weights": [finite(weight) for weight in weights]}
    return {}


def standard_error(items: Sequence[Any], aggregate: Callable[[list[Any]], float]) -> float | None:
    """Standard error of `aggregate(items)`, items drawn independently; None for one item.

    A mean's in closed form, as lm-eval gives it; any other figure's from resampled items.
    """
    if len(items) < 2:
        return None
    if aggregate.__name__ in ("mean", "fmean"):
        return finite(_mean_error(items))
    drawn = np.random.default_rng(SEED).integers(len(items), size=(RESAMPLES, len(items)))
    return finite(np.std([aggregate([items[index] for index in row]) for row in drawn], ddof=1))


def interval(items: Sequence[Any], value: float | None) -> list[float] | None:
    """95 % of a share of right items; None for any other figure, such as a group's whose tasks weigh unequally.

    The standard error next to it is 0 if all items are right, or all wrong: with five items that is no certainty.
    """
    if value is None or not _are_numbers(items) or any(item not in (0, 1) for item in items):
        return None
    is_share = math.isclose(value, sum(items) / len(items), rel_tol=1e-9)
    return list(share_interval(int(sum(items)), len(items))) if is_share else None


def finite(value: Any) -> float | int | None:
    """A number that JSON can hold; None for NaN and infinities."""
    if isinstance(value, int):
        return value
    value = float(value)
    return value if math.isfinite(value) else None


def _mean_error(items: Sequence[float]) -> float | None:
    return float(np.std(items, ddof=1) / math.sqrt(len(items))) if len(items) > 1 else None


def _are_numbers(items: Sequence[Any]) -> bool:
    return all(isinstance(item, int | float) for item in items)


def _is_figure(name: str, value: Any) -> bool:
    """Whether it is one of lm-eval's figures ("acc,none"), and no error of one: those it was not asked for."""
    return "," in name and "_stderr," not in name and isinstance(value, int | float)


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
