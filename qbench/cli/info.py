"""`qbench info`: this machine as the records describe it, and its kernels."""

from textwrap import wrap

import click

from qbench.cli.output import json_option, print_json, print_pairs, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.host.machine import machine
from qbench.speed.peaks import largest_peak


@click.command("info")
@click.option("--measure/--no-measure", default=True, show_default=True, help="Measure bandwidth and peaks (seconds).")
@click.option(
    "--memory-rounds",
    type=click.IntRange(2, 100),
    help="Rounds in which old and new memory is read, to find out why its bandwidth changes; prints nothing else.",
)
@click.option("--all", "show_all", is_flag=True, help="Every kernel and instruction set, one per line.")
@json_option
def command(measure: bool, memory_rounds: int | None, show_all: bool, as_json: bool) -> None:
    """This machine: processor, instruction sets, kernels, bandwidth and arithmetic peaks."""
    if memory_rounds is not None:
        return print_memory_rounds(memory_rounds, as_json)
    info = describe(measure)
    if as_json:
        print_json(info)
        return
    machine_peaks = info.pop("machine_peaks")
    kernels = info.pop("kernels")
    print_pairs(info)
    for line in () if show_all else kernel_table(kernels):
        click.echo(line)
    for op in kernels if show_all else ():
        state = "chosen" if op["chosen"] else "available" if op["available"] else "not on this machine"
        click.echo(f"kernel  {op['op']}  {op['impl']}  {state}")
    for threads, row in machine_peaks.items():
        click.echo(
            f"{threads} thread(s): read {readable_bytes(row['read_bytes_s'])}/s, "
            f"int8 {tera(row['int8_op_s'], 'TOPS')}, fp32 {tera(row['fp32_op_s'], 'TFLOPS')}"
        )


def tera(rate: float | None, unit: str) -> str:
    """rate: operations per second; None if they were not measured"""
    return "n/a (other programs kept the cores)" if rate is None else f"{rate / 1e12:.3f} {unit}"


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


def kernel_table(kernels: list[dict]) -> list[str]:
    """Number of ops and their names by the implementation that runs here, commonest first."""
    ops: dict[str, list[str]] = {}
    for row in kernels:
        if row["chosen"]:
            ops.setdefault(row["impl"], []).append(row["op"])
    lines = [f"kernels: {sum(map(len, ops.values()))} ops, by the implementation that runs here (--all lists each)"]
    for impl, names in sorted(ops.items(), key=lambda item: -len(item[1])):
        lines += wrap(", ".join(names), 100, initial_indent=f"  {impl:<14} ", subsequent_indent=" " * 17)
    return lines


def describe(measure: bool) -> dict:
    """Machine fingerprint, the kernel table, and the machine peaks measured now (empty if not measured)."""
    import cpu_kernels

    info = machine().to_json()
    info["kernels"] = cpu_kernels.op_table()
    info["machine_peaks"] = {}
    if measure:
        counts = sorted({1, info["cores"]})
        with progress_bar("measuring") as update:
            for done, threads in enumerate(counts):
                update(done, len(counts), f"bandwidth and peaks, {threads} thread(s)")
                info["machine_peaks"][str(threads)] = {
                    "read_bytes_s": cpu_kernels.measure_read_bandwidth(threads),
                    "int8_op_s": largest_peak("int8", threads),
                    "fp32_op_s": largest_peak("fp32", threads),
                }
    return info
