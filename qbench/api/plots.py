"""Plots of records as plotly figures."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from qbench.api.measure import results
from qbench.report.columns import Column, all_columns
from quant.errors import InputError

LOG_COLUMNS = ("kld_mean", "kld_median", "kld_max")  # they span decades


def plot(
    rows: pd.DataFrame | str | Path | Iterable[str | Path], x: str = "size_bytes", y: str = "kld_mean"
) -> go.Figure:
    """A scatter plot of one column of records against another, with 95 % intervals if the rows have them.

    rows     of `results`, or files or folders of records; one colour per group of comparable rows
    x, y     columns of numbers; units are those of the report
    raises   InputError for an unknown column, and for rows without a value of both
    """
    frame = rows if isinstance(rows, pd.DataFrame) else results(rows)
    across, up = (_column(frame, name) for name in (x, y))
    known = frame.dropna(subset=[x, y])
    if known.empty:
        raise InputError(f"no row has both {x} and {y}; choose other columns, or records that have them")
    figure = go.Figure()
    for group, its in known.groupby("group", sort=False):
        figure.add_scatter(
            x=its[x] * across.scale,
            y=its[y] * up.scale,
            error_x=_whiskers(its, across),
            error_y=_whiskers(its, up),
            text=its["recipe"],
            mode="markers+text",
            textposition="top center",
            name=str(group),
        )
    figure.update_xaxes(title=across.heading, type=_scale(x))
    return figure.update_yaxes(title=up.heading, type=_scale(y))


def _column(frame: pd.DataFrame, name: str) -> Column:
    values = {str(key): frame[key] for key in frame.columns}
    known = {column.key: column for column in all_columns(values) if column.key in values}
    numbers = [key for key in known if pd.api.types.is_numeric_dtype(frame[key])]
    if name not in numbers:
        raise InputError(f"column {name!r} has no numbers, expected one of {', '.join(numbers)}")
    return known[name]


def _whiskers(its: pd.DataFrame, column: Column) -> dict | None:
    """Ends of the interval as distances from the value; None for a column without an interval."""
    if column.ends is None or not set(column.ends) <= set(its.columns):
        return None
    low, high = (its[end] * column.scale for end in column.ends)
    value = its[column.key] * column.scale
    return {"type": "data", "symmetric": False, "array": high - value, "arrayminus": value - low}


def _scale(name: str) -> str:
    return "log" if name in LOG_COLUMNS else "linear"
