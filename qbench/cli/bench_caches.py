"""`qbench bench --cache none,dynamic`: steps and prompts with several caches, by tokens held."""

from collections.abc import Sequence
from dataclasses import replace

import click

from qbench.cli.output import aligned, print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.metrics import Metrics
from qbench.run_options import RunOptions
from qbench.speed.speed_case import SpeedCase
from quant.present import present

DISK_HEADS = ("read a step", "hit share")


def print_caches(
    model: str,
    cases: Sequence[SpeedCase],
    options: RunOptions,
    threads: Sequence[int | None],
    pairs: Sequence[tuple[str, str]],
    as_json: bool,
) -> None:
    """One object per cache and case, or one table of all."""
    from qbench.speed.bench import bench_cases

    rows = []
    with progress_bar(f"bench {model}") as update:
        for layout, policy in pairs:
            cached = replace(options, cache=layout, policy=policy)
            for row in bench_cases(model, cases, cached, threads=threads, progress=update):
                rows.append((layout, policy, row))
                if as_json:
                    print_json(row.to_json() | {"cache": layout, "policy": policy})
    if not as_json:
        click.echo("\n".join(caches_table(rows)))


def caches_table(rows: Sequence[tuple[str, str, Metrics]]) -> list[str]:
    """A line per cache, depth, batch and number of threads: milliseconds of a step of all sequences, and so on."""
    heads = ("cache", "policy", "depth", "batch", "threads", "ms per step", "prompt ms", "KV cache", *DISK_HEADS)
    cells = [
        (
            layout,
            policy,
            *(str(row.figure(name)) for name in ("depth", "batch", "threads")),
            _number(row.figure("tpot_ms")),
            _number(row.figure("ttft_ms")),
            readable_bytes(present(row.figure("kv_bytes_held"))),
            *disk_cells(row),
        )
        for layout, policy, row in rows
    ]
    if all(row.figure("kv_bytes_read") is None for _, _, row in rows):
        heads, cells = heads[: -len(DISK_HEADS)], [line[: -len(DISK_HEADS)] for line in cells]
    return aligned(heads, cells)


def disk_cells(row: Metrics) -> tuple[str, str]:
    size, hits = row.figure("kv_bytes_read"), row.figure("kv_hit_share")
    return ("n/a", "n/a") if size is None or hits is None else (readable_bytes(round(size)), f"{hits:.3f}")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
