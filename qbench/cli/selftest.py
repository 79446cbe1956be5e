"""`qbench selftest`: whether the kernels compute what they should on this machine."""

import click

from qbench.cli.output import json_option, print_json
from qbench.cli.progress import progress_bar


@click.command("selftest")
@click.option("--only", help="Ops whose name contains this.")
@json_option
@click.pass_context
def command(ctx: click.Context, only: str | None, as_json: bool) -> None:
    """Check every kernel, in every instruction set that this machine runs, against its oracle.

    Exit status 1 if one is wrong.
    """
    from qbench.harness.machine import machine
    from qbench.kernels.registry import kernels
    from qbench.kernels.selftest import selftest, summary

    with progress_bar("selftest") as update:
        result = {"machine": machine()["id"], **summary(selftest(kernels(), only or "", update))}
    if as_json:
        print_json(result)
    else:
        print_rows(result)
    if not result["green"]:
        ctx.exit(1)


def print_rows(result: dict) -> None:
    """One line an implementation: status, how far it is from the oracle, and what dispatch makes of it."""
    width = max(len(row["op"]) for row in result["rows"])
    for row in result["rows"]:
        detail = row["reason"] or f"{row['num_problems']} problems, {margin(row)}"
        if row["status"] == "WRONG" and row["worst"]:
            detail += f" ({row['worst']}: {margin(row)})"
        click.echo(f"{row['op']:<{width}}  {row['isa']:<11}  {row['status']:<12}  {detail}; {row['dispatch']}")
    counts = ", ".join(
        f"{result[name]} {name.replace('_', ' ')}" for name in ("ok", "wrong", "not_executed", "no_oracle")
    )
    click.echo(f"{'green' if result['green'] else 'RED'}: {counts}; this machine has {', '.join(result['features'])}")


def margin(row: dict) -> str:
    if row["error"] is None:
        return "no finite error"
    if row["bound"] == 0:
        return "equal to the oracle" if row["error"] == 0 else f"off by {row['error']:.3g}, expected equal"
    return f"error {row['error']:.2e} of at most {row['bound']:.2e}"
