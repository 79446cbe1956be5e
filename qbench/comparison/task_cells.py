"""The tasks that two rows have in common: item by item, and each item counted once."""

from collections.abc import Mapping
from dataclasses import replace

from qbench.measure.quality_figures import TaskResult
from qbench.statistics.cell import Cell, Flips, why_untold
from qbench.statistics.paired import differing
from qbench.statistics.task_figures import change_of, figure_of
from qbench.statistics.verdict import accuracy_difference
from quant.present import present

IN_ITS_TASKS = "no verdict of a group: its tasks, which have the same items, are judged one by one"


def task_cells(a: Mapping[str, TaskResult], b: Mapping[str, TaskResult], left_out: list[str]) -> list[Cell]:
    """A cell of each task; `left_out` gets the reason if a task has no cell.

    A group's items are those of its tasks: if both are there, only the tasks have verdicts and count among the
    p values, since a loss in one of them is thinned out in the group.
    """
    found = [_cell(name, a[name], b[name], left_out) for name in a if name in b]
    cells = {cell.metric: cell for cell in found if cell is not None}
    return [_counted_once(cell, cells, a[name]) for name, cell in cells.items()]


def _counted_once(cell: Cell, cells: Mapping[str, Cell], task: TaskResult) -> Cell:
    members = (task.protocol or {}).get("tasks") or {}
    return (
        replace(cell, is_tested=False, note=IN_ITS_TASKS)
        if isinstance(members, Mapping) and any(name in cells for name in members)
        else cell
    )


def _cell(name: str, one: TaskResult, other: TaskResult, left_out: list[str]) -> Cell | None:
    if one.protocol_hash != other.protocol_hash:
        left_out.append(f"{name}: unlike tasks ({differing(one.protocol or {}, other.protocol or {})})")
        return None
    if one.correct and other.correct:
        return replace(_right_or_wrong(name, one.correct, other.correct), protocol_hash=one.protocol_hash)
    why_not = _why_not(one, other)
    if why_not is None:
        cell = _of_values(name, one, other)
        if cell is not None:
            return replace(cell, protocol_hash=one.protocol_hash)
        why_not = f"how {one.metric} follows from its items, or which way is better, is not known"
    left_out.append(f"{name}: {why_not}")
    return None


def _right_or_wrong(name: str, one: str, other: str) -> Cell:
    found = accuracy_difference(one, other)
    flips = Flips(found["right_to_wrong"], found["wrong_to_right"], len(one))
    a, b = (correct.count("1") / len(correct) for correct in (one, other))
    return Cell(name, a, b, "difference", False, found["difference"], flips=flips)


def _why_not(one: TaskResult, other: TaskResult) -> str | None:
    a, b = _values(one), _values(other)
    if not a or not b:
        return f"{one.metric} is kept without its items"
    for side, values in (("A", a), ("B", b)):
        if None in values:
            return f"{one.metric} of {values.count(None)} of {len(values)} items of {side} is not finite"
    if len(a) != len(b) or one.weights != other.weights:
        return "items of unlike number or weight"
    return None


def _of_values(name: str, one: TaskResult, other: TaskResult) -> Cell | None:
    """None where the figure, or which way is better, is not known."""
    weights = None if one.weights is None else [present(weight) for weight in one.weights]
    figure = figure_of([(_items(task), weights, task.value) for task in (one, other)])
    if figure is None or one.value is None or other.value is None:
        return None
    lower_is_better = figure.lower_is_better
    if lower_is_better is None:
        if one.higher_is_better is None:
            return None
        lower_is_better = not one.higher_is_better
    a, b = _items(one), _items(other)
    change = change_of(figure, a, b, weights)
    note = why_untold(change, len(a), "item")
    cell = Cell(name, one.value, other.value, figure.kind, lower_is_better, change)
    return replace(cell, unit=one.metric, note=note, num_blocks=len(a))


def _items(task: TaskResult) -> list[float]:
    """`_values` of a task whose items are all there and finite."""
    return [present(value) for value in present(_values(task))]


def _values(task: TaskResult) -> list[float | None] | None:
    """[items]; items that were all right or wrong are kept as digits, though the other side's may be between them."""
    return [float(digit) for digit in task.correct] if task.correct else task.values
