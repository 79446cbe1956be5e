"""`qbench selftest`: checks of the kernels on this machine."""

import os
import subprocess
import sys
from itertools import groupby

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option, print_json
from qbench.cli.progress import progress_bar
from qbench.cli.types import only_option
from qbench.measure.host.machine import machine
from qbench.run.choices import ISAS
from quant.errors import InputError

COUNTS = ("ok", "emulated", "wrong", "not_executed", "no_oracle")


@click.command("selftest", cls=Command, examples=("qbench selftest", "qbench selftest --only linear_q4_k --verbose"))
@only_option("an op", "Ops whose name contains this.")
@click.option("-v", "--verbose", is_flag=True, help="Print one line per implementation.")
@click.option("--emulate-amx", is_flag=True, help="Emulate AMX kernels on a processor without AMX; takes minutes.")
@click.option(
    "--emulate-avx-vnni", is_flag=True, help="Emulate AVX-VNNI kernels on a processor without it; takes minutes."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, only: str, verbose: bool, emulate_amx: bool, emulate_avx_vnni: bool, as_json: bool
) -> None:
    """Check every kernel, in every instruction set that this machine runs, against its oracle.

    Exit status 1 if one is wrong or has no oracle, or if no kernel ran.
    """
    emulated = ["amx"] * emulate_amx + ["avx_vnni"] * emulate_avx_vnni
    if emulated:
        options = [*["--only", only] * bool(only), *["--verbose"] * verbose, *["--json"] * as_json]
        ctx.exit(with_emulator(emulated, options))
    from qbench.kernels.registry import kernels
    from qbench.kernels.selftest import selftest, summary

    with progress_bar("selftest") as update:
        result = {"machine": machine().id, **summary(selftest(kernels(), only, update)).to_json()}
    if as_json:
        print_json(result)
    else:
        print_rows(result["rows"], verbose)
        print_summary(result)
    if not result["green"]:
        ctx.exit(1)


def with_emulator(emulated: list[str], options: list[str]) -> int:
    """The exit status of the self-test in a process of its own, where the emulator can be loaded before all else."""
    from cpu_kernels.emulation import with_amx_emulator

    try:
        for isa in emulated:
            check_lacking(isa)
        environment = with_amx_emulator(dict(os.environ))
    except RuntimeError as error:
        raise InputError(f"--emulate-{emulated[0].replace('_', '-')}: {error}") from error
    return subprocess.run([sys.executable, "-m", "qbench.cli.main", "selftest", *options], env=environment).returncode


def check_lacking(isa: str) -> None:
    """raises RuntimeError if this machine has `isa`, or would not run it with its instructions emulated either"""
    import cpu_kernels
    from cpu_kernels.emulation import TITLES, require_around

    if isa in cpu_kernels.features():
        raise RuntimeError(f"this machine has {TITLES[isa]}, and the self-test runs its kernels on it")
    require_around(isa)
    pretended = os.environ.get("QBENCH_CPU")
    if pretended and ISAS.index(pretended) < ISAS.index(isa):
        raise RuntimeError(f"QBENCH_CPU={pretended} leaves {TITLES[isa]} out")


def print_rows(rows: list[dict], verbose: bool) -> None:
    """A line per op; one for each implementation of those that are wrong, or of all if that is asked for."""
    width = max(len(row["op"]) for row in rows)
    for op, group in groupby(rows, key=lambda row: row["op"]):
        found = list(group)
        if verbose or any(row["status"] == "WRONG" for row in found):
            for row in found:
                click.echo(f"{op:<{width}}  {row['isa']:<11}  {row['status']:<12}  {detail(row)}; {row['dispatch']}")
        else:
            click.echo(f"{op:<{width}}  {of_op(found)}")


def of_op(rows: list[dict]) -> str:
    """ "ok avx2, scalar; not executed amx; 12 problems, error 1e-6 of at most 2e-6; avx2 chosen: ..." """
    statuses = [
        f"{status} " + ", ".join(row["isa"] for row in rows if row["status"] == status)
        for status in dict.fromkeys(row["status"] for row in rows)
    ]
    ran = [row for row in rows if row["num_problems"]]
    worst = max(ran, key=lambda row: row["error"] / (row["bound"] or 1)) if ran else rows[-1]
    chosen = [f"{row['isa']} {row['dispatch']}" for row in rows if row["chosen"]]
    return "; ".join([*sorted(statuses, key=lambda text: not text.startswith("ok")), detail(worst), *chosen])


def detail(row: dict) -> str:
    if row["status"] == "WRONG" and row["worst"]:
        return f"{row['reason']} ({row['worst']}: {margin(row)})"
    return row["reason"] or f"{row['num_problems']} problems, {margin(row)}"


def print_summary(result: dict) -> None:
    counts = ", ".join(f"{result[name]} {name.replace('_', ' ')}" for name in COUNTS if result[name])
    verdict = "green" if result["green"] else "RED" if result["ok"] + result["emulated"] else "RED, nothing was checked"
    click.echo(f"{verdict}: {counts}; this machine has {', '.join(result['features'])}")


def margin(row: dict) -> str:
    if row["error"] is None:
        return "no finite error"
    if row["bound"] == 0:
        return "equal to the oracle" if row["error"] == 0 else f"off by {row['error']:.3g}, expected equal"
    return (
        f"error {row['error']:.2e} of at most {row['bound']:.2e}, no bound above {row['loosest']:.2g} of results' rms"
    )
