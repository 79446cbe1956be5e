"""`qbench info`: this machine as the records describe it, and its kernels."""

from textwrap import wrap

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option, print_json, print_pairs, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.host.machine import machine
from qbench.speed.peaks import largest_peak, unit_isas

OP_S = "_op_s"  # after an arithmetic, in the keys of the JSON
BY_TOKENS = ("linear_", "attention")  # prefixes of ops that choose by their number of tokens


@click.command("info", cls=Command, examples=("qbench info", "qbench info --no-measure --all"))
@click.option("--measure/--no-measure", default=True, show_default=True, help="Measure bandwidth and peaks (seconds).")
@click.option(
    "--memory-rounds",
    type=click.IntRange(2, 100),
    help="Rounds in which old and new memory is read, to find out why its bandwidth changes; prints nothing else.",
)
@click.option("--all", "show_all", is_flag=True, help="Every kernel and instruction set, one per line.")
@json_option
def command(measure: bool, memory_rounds: int | None, show_all: bool, as_json: bool) -> None:
    """This machine: processor, kernels, the unit of each op by number of tokens, bandwidth and peaks."""
    if memory_rounds is not None:
        return print_memory_rounds(memory_rounds, as_json)
    info = describe(measure)
    if as_json:
        print_json(info)
        return
    kernels, units, machine_peaks = (info.pop(name) for name in ("kernels", "units", "machine_peaks"))
    print_pairs(info)
    lines = kernel_list(kernels) + unit_list(units) if show_all else kernel_table(kernels) + unit_table(units)
    click.echo("\n".join(lines))
    for threads, row in machine_peaks.items():
        click.echo(f"{threads} thread(s): read {readable_bytes(row.pop('read_bytes_s'))}/s, {rates_text(row)}")


def rates_text(rates: dict[str, float | None]) -> str:
    """ "int8 14.212 TOPS, bf16 7.106 TOPS". rates: operations per second by key; None if they were not measured"""
    tera = {
        key: "n/a (other programs kept the cores)" if rate is None else f"{rate / 1e12:.3f} TOPS"
        for key, rate in rates.items()
    }
    return ", ".join(f"{key.removesuffix(OP_S)} {text}" for key, text in tera.items())


def print_memory_rounds(num_rounds: int, as_json: bool) -> None:
    from qbench.speed import memory_rounds

    found = memory_rounds.memory_rounds(num_rounds)
    if as_json:
        return print_json(found.to_json())
    for kept, new in zip(found.kept, found.new, strict=True):
        click.echo(f"kept memory {readable_bytes(kept)}/s, new memory {readable_bytes(new)}/s")
    huge, stolen = found.huge_page_share, found.stolen
    print_pairs(
        {
            "kept memory": f"fastest round {max(found.kept) / min(found.kept):.2f} times the slowest",
            "new memory": f"fastest round {max(found.new) / min(found.new):.2f} times the slowest",
            "huge pages": "unknown" if huge is None else f"{100 * huge:.0f} % of this process",
            "NUMA nodes": "unknown" if found.numa_nodes is None else ", ".join(map(str, found.numa_nodes)),
            "stolen": "unknown" if stolen is None else f"{100 * stolen:.1f} % of the time, by the host for others",
        }
    )


def kernel_list(kernels: list[dict]) -> list[str]:
    """A line per op and instruction set."""
    state = {row["op"] + row["impl"]: "available" if row["available"] else "not on this machine" for row in kernels}
    state |= {row["op"] + row["impl"]: "chosen" for row in kernels if row["chosen"]}
    return [f"kernel  {row['op']}  {row['impl']}  {state[row['op'] + row['impl']]}" for row in kernels]


def kernel_table(kernels: list[dict]) -> list[str]:
    """Names of the ops by the implementation that runs here, commonest first, except those of the table of units."""
    ops: dict[str, list[str]] = {}
    for row in kernels:
        if row["chosen"] and not row["op"].startswith(BY_TOKENS):
            ops.setdefault(row["impl"], []).append(row["op"])
    lines = [f"kernels: {len({row['op'] for row in kernels})} ops (--all lists each); for any number of tokens"]
    for impl, names in sorted(ops.items(), key=lambda item: -len(item[1])):
        lines += wrap(", ".join(names), 100, initial_indent=f"  {impl:<14} ", subsequent_indent=" " * 17)
    return lines


def unit_list(units: list[dict]) -> list[str]:
    """A line per op, format and number of tokens."""
    return [f"unit  {row['op']}  {row['format']}  {row['tokens']} token(s)  {unit_name(row)}" for row in units]


def unit_table(units: list[dict]) -> list[str]:
    """Units of each op by number of tokens; formats with the same units share a line."""
    of_format: dict[tuple[str, str], list[str]] = {}
    for row in units:
        of_format.setdefault((row["op"], row["format"]), []).append(unit_name(row))
    formats: dict[tuple[str, ...], list[str]] = {}
    for (op, name), its in of_format.items():
        formats.setdefault((op, *its), []).append(name)
    heading = ("units:", *dict.fromkeys(f"{row['tokens']} token(s)" for row in units))
    widths = [max(map(len, column)) for column in zip(heading, *formats, strict=True)]
    lines = []
    for cells, names in ({heading: ["formats"]} | formats).items():
        start = "  ".join([cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]) + "  "
        lines += wrap(", ".join(names), 120, initial_indent=start, subsequent_indent=" " * len(start))
    return lines


def unit_name(row: dict) -> str:
    """ "amx tile": the instruction set, and the path if the op has several"""
    return row["isa"] if row["path"] is None else f"{row['isa']} {row['path']}"


def describe(measure: bool) -> dict:
    """Machine fingerprint, kernels, the unit of each op, and the machine peaks measured now (empty if not measured)."""
    import cpu_kernels
    from qbench.kernels.choices import choices  # imports numpy

    info = machine().to_json()
    info["kernels"] = cpu_kernels.op_table()
    info["units"] = [choice.to_json() for choice in choices()]
    info["machine_peaks"] = {}
    if measure:
        counts = sorted({1, info["cores"]})
        with progress_bar("measuring") as update:
            for done, threads in enumerate(counts):
                update(done, len(counts), f"bandwidth and peaks, {threads} thread(s)")
                info["machine_peaks"][str(threads)] = {
                    "read_bytes_s": cpu_kernels.measure_read_bandwidth(threads),
                    **{name + OP_S: largest_peak(name, threads) for name in unit_isas()},
                }
    return info
