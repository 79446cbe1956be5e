"""A noise floor as a table: how far the model lies from itself, by what was changed."""

from qbench.compare.side import Record
from qbench.compare.table import Grid

SHOWN = ("perplexity", "kld", "same_top")


def make_floor_grid(record: Record) -> Grid:
    """Of a text under one protocol, or of a task."""
    return _of_task(record) if "tasks" in record["metrics"] else _of_text(record)


def _of_text(record: Record) -> Grid:
    metrics = record["metrics"]
    rows = [[name, variant["how"], *_figures(variant)] for name, variant in metrics["variants"].items()]
    floor = metrics["floor"]
    rows.append(["floor", "the farthest end", f"{100 * floor['perplexity']:.2g} %", f"{floor['kld']:.2e}", ""])
    headings = ["changed", "how", "perplexity", "mean KLD from itself", "same top"]
    return Grid(headings, rows, [False, False, True, True, True], [_note(record, "protocol")])


def _of_task(record: Record) -> Grid:
    metrics = record["metrics"]
    ((task, entry),) = metrics["tasks"].items()
    scale, unit = (100, " points") if "correct" in entry else (1, "")

    def change(variant: Record) -> str:
        if not variant["floor"]:
            return "identical"
        return _with_interval(variant["change"], lambda value: f"{scale * value:+.3g}") + unit

    rows = [
        [name, variant["how"], change(variant), _flips(variant["flips"])]
        for name, variant in metrics["variants"].items()
    ]
    rows.append(["floor", "the largest", f"{scale * metrics['floor'][task]:.2g}{unit}", ""])
    headings = ["changed", "how", f"{task} {entry['metric']}", "answers"]
    return Grid(headings, rows, [False, False, True, False], [_note(record, "task")])


def _flips(flips: Record | None) -> str:
    return "" if flips is None else f"{flips['lost']} lost, {flips['gained']} gained of {flips['num_items']}"


def _note(record: Record, kind: str) -> str:
    metrics = record["metrics"]
    protocol = metrics["protocol"]
    return (
        f"{record['case']['model']}, {kind} {protocol['name']} ({protocol['hash'][:12]}), isa {metrics['isa']}, "
        f"machine {record['machine']['id']}: each line is the same model, computed otherwise, against itself [95 %]."
    )


def _figures(variant: Record) -> list[str]:
    if not any(variant["floor"].values()):
        return ["identical"] * len(SHOWN)
    ratio, kld, same_top = (variant[metric] for metric in SHOWN)
    return [
        _with_interval(ratio, lambda value: f"{100 * (value - 1):+.4f}") + " %",
        _with_interval(kld, lambda value: f"{value:.2e}"),
        _with_interval(same_top, lambda value: f"{100 * value:.3f}") + " %",
    ]


def _with_interval(estimate: Record, write) -> str:
    if estimate["low"] is None:
        return f"{write(estimate['value'])} [n/a]"
    return f"{write(estimate['value'])} [{write(estimate['low'])}, {write(estimate['high'])}]"
