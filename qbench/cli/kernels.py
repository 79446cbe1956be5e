"""`qbench kernels`: each kernel's speed at the shapes of real models, beside others'."""

import click

from qbench.cli.int_list import IntList
from qbench.cli.output import json_option, print_json, print_warning, threads_option
from qbench.cli.progress import progress_bar


@click.command("kernels")
@click.option("--only", default="", help="Kernels whose name contains this, e.g. q4_k.")
@click.option("--m", "tokens", type=IntList(1), default="1,4,16,64,512", show_default=True, help="Tokens a call.")
@click.option("--cpu-time", is_flag=True, help="Count the time this process gets: for a busy machine, one thread.")
@click.option("--keep", type=click.Path(), help="Append the rows as records to this file or folder.")
@threads_option
@json_option
@click.pass_context
def command(ctx, only, tokens, cpu_time, keep, threads, as_json) -> None:
    """Time, bandwidth, operations and share of the roofline of every kernel, beside the peers that are installed.

    Contenders take turns; bandwidth and peaks are measured in the same run. Exit status 1 if a kernel of ours is wrong.
    """
    from qbench.harness.host.busy import busy_share, busy_warning
    from qbench.harness.host.machine import available_cores
    from qbench.harness.records.kept_row import KERNEL_KEYS, keep_row
    from qbench.kernels.benchmark import OURS
    from qbench.kernels.run import run_kernels
    from qbench.runtime import set_threads

    threads = threads or available_cores()
    set_threads(threads)
    busy, any_wrong = busy_share(), False
    with progress_bar("kernels") as update:
        for number, row in enumerate(run_kernels(only, tokens, threads, busy, "cpu" if cpu_time else "wall", update)):
            if number == 0:
                print_warning(busy_warning(busy))
            any_wrong |= "wrong" in row["contenders"][OURS]
            if keep is not None:
                keep_row(keep, row, {"kind": "kernel"}, KERNEL_KEYS)
            if as_json:
                print_json(row)
            else:
                click.echo(line(row))
    if any_wrong:
        ctx.exit(1)


def line(row: dict) -> str:
    """What it is, our figures, then each peer's time and how many times as fast as it ours is."""
    label = f"{row['op']:<18} {row['shape']:<11} M={row['tokens']:<4}"
    return "  ".join([label, *(contender(name, entry, row) for name, entry in row["contenders"].items())])


def contender(name: str, entry: dict, row: dict) -> str:
    if "ms" not in entry:
        return f"{name} " + (f"n/a ({entry['absent']})" if "absent" in entry else f"WRONG ({entry['wrong']})")
    if "ratio" in entry:
        return f"{name} {entry['ms']:.3f} ms ({entry['ratio']['median']:.2f}x)"
    return (
        f"{entry['ms']:>8.3f} ms {entry['gb_s']:>6.1f} GB/s {entry['tera_ops']:>6.3f} TOPS "
        f"{100 * entry['share']:>3.0f} % of the roofline ({row['bound_by']}) [{entry['how']}]"
    )
