"""A noise floor as a table: distance of the model from itself for each changed condition."""

from collections.abc import Callable

from qbench.comparison.table import Grid
from qbench.measure.quality_figures import TaskResult
from qbench.measure.records.kinds import FloorCase, FloorMetrics, FloorVariant
from qbench.measure.records.record import Record
from quant.present import present


def make_floor_grid(record: Record) -> Grid:
    """The floor of a text under one protocol, or of a task. raises TypeError for a row of another kind"""
    case, metrics = record.case, record.metrics
    if not isinstance(case, FloorCase) or not isinstance(metrics, FloorMetrics):
        raise TypeError(f"{record.key}: got a row of kind {case.kind!r}, expected a noise floor")
    note = _note(case, metrics, record.machine.id, "protocol" if metrics.tasks is None else "task")
    if metrics.tasks is None:
        return _of_text(metrics, note)
    ((task, entry),) = metrics.tasks.items()
    return _of_task(metrics, task, entry, note)


def _of_text(metrics: FloorMetrics, note: str) -> Grid:
    rows = [[name, variant.how, *_figures(variant)] for name, variant in present(metrics.variants).items()]
    floor = present(metrics.floor)
    rows.append(["floor", "the farthest end", f"{100 * floor['perplexity']:.2g} %", f"{floor['kld']:.2e}", ""])
    headings = ["changed", "how", "perplexity", "mean KLD from itself", "same top"]
    return Grid(headings, rows, [False, False, True, True, True], [note])


def _of_task(metrics: FloorMetrics, task: str, entry: TaskResult, note: str) -> Grid:
    scale, unit = (1, "") if entry.correct is None else (100, " points")

    def change(variant: FloorVariant) -> str:
        if not variant.floor:
            return "identical"
        return _with_interval(present(variant.change), lambda value: f"{scale * value:+.3g}") + unit

    rows = [
        [name, variant.how, change(variant), _flips(variant.flips)]
        for name, variant in present(metrics.variants).items()
    ]
    rows.append(["floor", "the largest", f"{scale * present(metrics.floor)[task]:.2g}{unit}", ""])
    headings = ["changed", "how", f"{task} {entry.metric}", "answers"]
    return Grid(headings, rows, [False, False, True, False], [note])


def _flips(flips: dict[str, int] | None) -> str:
    return "" if flips is None else f"{flips['lost']} lost, {flips['gained']} gained of {flips['num_items']}"


def _note(case: FloorCase, metrics: FloorMetrics, machine: str, kind: str) -> str:
    protocol = present(present(metrics.quality).protocol)
    return (
        f"{case.model}, {kind} {protocol.name} ({(protocol.hash or '')[:12]}), isa {present(metrics.facts).isa}, "
        f"machine {machine}: each line is the same model, computed otherwise, against itself [95 %]."
    )


def _figures(variant: FloorVariant) -> list[str]:
    if not isinstance(variant.floor, dict) or not any(variant.floor.values()):
        return ["identical"] * 3
    return [
        _with_interval(present(variant.perplexity), lambda value: f"{100 * (value - 1):+.4f}") + " %",
        _with_interval(present(variant.kld), lambda value: f"{value:.2e}"),
        _with_interval(present(variant.same_top), lambda value: f"{100 * value:.3f}") + " %",
    ]


def _with_interval(estimate: dict[str, float | None], write: Callable[[float], str]) -> str:
    value, low, high = present(estimate["value"]), estimate["low"], estimate["high"]
    if low is None or high is None:
        return f"{write(value)} [n/a]"
    return f"{write(value)} [{write(low)}, {write(high)}]"
