"""`qbench race MODEL --policy full,h2o:budget=64`: steps and prompts with several caches, by tokens held."""

from collections.abc import Sequence

import click

from qbench.cli.bench_lines import PHASES, num_rounds, samples_of
from qbench.cli.output import aligned, print_json, print_warning, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.metrics import Metrics
from qbench.run.options import RunOptions
from qbench.speed.entry import Entry
from quant.present import present

DISK_HEADS = ("read a step", "hit share")


def print_caches(
    model: str, entries: Sequence[Entry], options: RunOptions, threads: Sequence[int | None], as_json: bool
) -> None:
    """One object per entry, or one table of all."""
    from qbench.speed.lineup import bench_lineup

    rows: list[tuple[Entry, Metrics]] = []
    with progress_bar(f"bench {model}") as update:
        found = bench_lineup(model, entries, options, threads=threads, progress=update)
        for number, row in enumerate(found):
            entry = entries[number % len(entries)]
            rows.append((entry, row))
            if as_json:
                print_json(row.to_json() | {"cache": entry.layout, "policy": entry.policy})
    print_warning(not_interleaved_line(rows[0][1]))
    if not as_json:
        click.echo("\n".join([*caches_table(rows), *ratio_legend([row for _, row in rows])]))


def caches_table(rows: Sequence[tuple[Entry, Metrics]]) -> list[str]:
    """A line per row: milliseconds of a step of all sequences, and so on."""
    heads = ["cache", "policy", "depth", "batch", "threads", "ms per step", "prompt ms", "KV cache"]
    cells = [
        [
            entry.layout,
            entry.policy,
            *(str(row.figure(name)) for name in ("depth", "batch", "threads")),
            _number(row.figure("tpot_ms")),
            _number(row.figure("ttft_ms")),
            readable_bytes(present(row.figure("kv_bytes_held"))),
        ]
        for entry, row in rows
    ]
    if any(row.figure("kv_bytes_read") is not None for _, row in rows):
        heads += DISK_HEADS
        cells = [[*line, *disk_cells(row)] for line, (_, row) in zip(cells, rows, strict=True)]
    for phase in reversed(PHASES):
        if any(phase in (row.ratio or {}) for _, row in rows):
            heads.append(f"{phase} ratio")
            cells = [[*line, ratio_cell(row, phase)] for line, (_, row) in zip(cells, rows, strict=True)]
    return aligned(heads, cells)


def disk_cells(row: Metrics) -> tuple[str, str]:
    size, hits = row.figure("kv_bytes_read"), row.figure("kv_hit_share")
    return ("n/a", "n/a") if size is None or hits is None else (readable_bytes(round(size)), f"{hits:.3f}")


def ratio_cell(row: Metrics, phase: str) -> str:
    """ "0.934 (0.921 to 0.947)"; "base" for the first row"""
    if not row.ratio:
        return "base"
    ratio = row.ratio[phase]
    interval = "" if ratio["low"] is None else f" ({ratio['low']:.3f} to {ratio['high']:.3f})"
    return f"{ratio['value']:.3f}{interval}"


def ratio_legend(rows: Sequence[Metrics]) -> list[str]:
    """The base of the ratios, and a note on intervals of few rounds; empty without ratios."""
    compared = [row for row in rows if row.ratio]
    if not compared:
        return []
    from qbench.statistics.autocorrelation import told_of_few  # imports numpy

    count = min(num_rounds(samples_of(row)) for row in compared)
    text = f"ratio: tokens per second over those of {compared[0].ratio_to}; cases took turns in {count} round(s)"
    if all(ratio["low"] is None for row in compared for ratio in (row.ratio or {}).values()):
        return [text]
    few = told_of_few(count)
    return [f"{text}; 95 % intervals in brackets", *([few] if few else [])]


def not_interleaved_line(row: Metrics) -> str | None:
    why = present(row.speed).not_interleaved
    return why and f"cases ran one after another, so that no ratio is given: {why}"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
