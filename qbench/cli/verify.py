"""`qbench verify ARTIFACT`: make a quantized model again and compare."""

from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.measure.host.machine import available_cores
from qbench.run.choices import set_threads


@click.command(
    "verify", cls=Command, examples=("qbench verify model.gguf", "qbench verify model.gguf --source ref:llama")
)
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--source", help="The model it was made from, if it has moved.")
@click.option("--calibration", help="The calibration text or importance matrix, if it has moved.")
@axis_option("threads")
@json_option
def command(artifact: Path, source: str | None, calibration: str | None, threads: int | None, as_json: bool) -> None:
    """Make ARTIFACT again as its manifest says, and compare bit by bit. Exit status 1 if a tensor or a file differs."""
    from qbench.verify import verify

    threads = threads or available_cores()
    set_threads(threads)
    with progress_bar(f"verify {artifact}") as update:
        verified = verify(artifact, spec=source, text=calibration, threads=threads, progress=update)
    if as_json:
        print_json({"identical": not (verified.differing or verified.files), **as_dict(verified)})
    else:
        print_verified(verified)
    if verified.differing or verified.files:
        raise click.exceptions.Exit(1)


def as_dict(verified) -> dict:
    return {
        "num_tensors": verified.num_tensors,
        "differing": verified.differing,
        "files": verified.files,
        "versions": {name: {"then": then, "now": now} for name, (then, now) in verified.versions.items()},
    }


def print_verified(verified) -> None:
    for name, (then, now) in verified.versions.items():
        echo(f"{name}: {then} then, {now} now")
    for name, why in (verified.differing | verified.files).items():
        echo(f"{name}: {why}")
    if verified.differing:
        echo(f"{len(verified.differing)} of {verified.num_tensors} tensors differ")
    else:
        echo(f"all {verified.num_tensors} tensors are identical")
        if verified.files:
            echo(f"{len(verified.files)} of the artifact's files differ, in metadata: write the artifact again")
        elif not verified.has_digests:
            echo("metadata is not compared: the manifest is of an older version, without digests of files")
