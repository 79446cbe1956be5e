"""Columns that are made of others, or that not every table has: one per task, and one per further protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Metrics that are a share of the items, 0 to 1, and are shown in percent.
SHARES = ("acc", "acc_norm", "exact_match", "em", "f1")
TASK, PROTOCOL = "task:", "perplexity:"  # before their names, in keys
ENDS = (":low", ":high")  # after the key of a task or protocol: its interval
OVERHEAD = "overhead_share"  # share of a case's time outside measurements


def with_extra(frame: "pd.DataFrame") -> "pd.DataFrame":
    """`frame` with OVERHEAD, and a column of numbers for each task and further protocol that any row has."""
    columns: dict[str, np.ndarray] = {OVERHEAD: (frame["overhead_seconds"] / frame["wall_seconds"]).to_numpy(float)}
    tasks, protocols = frame["tasks"].tolist(), frame["protocols"].tolist()
    # Rows of one text share its parsed values, so that it is read once.
    places: dict[tuple[int, int], list[int]] = {}
    for i, shared in enumerate(zip(map(id, tasks), map(id, protocols), strict=True)):
        places.setdefault(shared, []).append(i)
    for rows in places.values():
        for key, value in _values(tasks[rows[0]], protocols[rows[0]]):
            if key not in columns:
                columns[key] = np.full(len(frame), np.nan)
            columns[key][rows] = np.nan if value is None else value
    return frame.assign(**columns)


def metric_of(rows: Iterable[Mapping[str, Mapping[str, Any]] | None], task: str) -> str | None:
    """The metric that a task is shown by; None if no row has the task."""
    return next((row[task]["metric"] for row in rows if row and task in row), None)


def _values(tasks: Mapping[str, Any] | None, protocols: Mapping[str, Any] | None) -> Iterator[tuple[str, float | None]]:
    for name, entry in (tasks or {}).items():
        yield TASK + name, entry["value"]
        yield from _ends(TASK + name, entry["interval"])
    if not protocols or len(protocols) < 2:  # the only one is the row's own
        return
    for name, entry in protocols.items():
        yield PROTOCOL + name, entry["perplexity"]
        yield from _ends(PROTOCOL + name, entry["perplexity_interval"])


def _ends(key: str, interval: Sequence[float] | None) -> Iterator[tuple[str, float | None]]:
    return zip([key + end for end in ENDS], interval or (), strict=bool(interval))
