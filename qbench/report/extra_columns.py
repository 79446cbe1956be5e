"""Columns that not every table has: one a task, and the perplexity under each further protocol of a run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Metrics that are a share of the items, 0 to 1, and are told in percent.
SHARES = ("acc", "acc_norm", "exact_match", "em", "f1")
TASK, PROTOCOL = "task:", "perplexity:"  # before their names, in keys


def with_extra(frame: "pd.DataFrame") -> "pd.DataFrame":
    """`frame` with a column of numbers for each task and further protocol that any row has, as they first come."""
    rows = [dict(_values(*both)) for both in zip(frame["tasks"], frame["protocols"], strict=True)]
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = {key: [row.get(key, float("nan")) for row in rows] for key in keys}
    return frame.assign(**columns).astype(dict.fromkeys(columns, float))


def metric_of(frame: "pd.DataFrame", task: str) -> str:
    """The metric that a task is told by."""
    return next(row[task]["metric"] for row in frame["tasks"].dropna() if task in row)


def _values(tasks: dict[str, Any] | None, protocols: dict[str, Any] | None) -> Iterator[tuple[str, float | None]]:
    for name, entry in (tasks or {}).items():
        yield TASK + name, entry["value"]
    if not protocols or len(protocols) < 2:  # the only one is the row's own
        return
    for name, entry in protocols.items():
        yield PROTOCOL + name, entry["perplexity"]
        for end, value in zip(("low", "high"), entry["perplexity_interval"] or (None, None), strict=True):
            yield f"{PROTOCOL}{name}:{end}", value
