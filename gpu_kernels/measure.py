"""Checks, then times, every kernel on this machine's GPU: `python -m gpu_kernels.measure`.

Exit code 0: measured, records appended. 1: a kernel is wrong, and nothing was timed. 2: no CUDA GPU, no such op, or
no commit to name.
"""

import argparse
import sys
from pathlib import Path

from gpu_kernels.measurement import Measurement, WrongResults, append, known_ops, line
from gpu_kernels.proof.choose import choices, write_choices


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu_kernels.measure", description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", default="", metavar="OP", help="ops whose name contains this")
    parser.add_argument("--budget", type=float, default=480, metavar="SECONDS", help="the rest is left out, and named")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), metavar="FOLDER", help="records: FAMILY.jsonl")
    parser.add_argument("--commit", help="the commit of a tree that was copied without its history")
    parser.add_argument("--choose", nargs="?", type=Path, const=Path(__file__).parent / "configs", metavar="FOLDER")
    arguments = parser.parse_args(argv)
    try:
        run = Measurement(known_ops(arguments.only), arguments.budget, arguments.commit, tell=_progress)
        rows = []
        for found in run.rows():
            append(arguments.out, found)
            print(*map(line, found), sep="\n", flush=True)
            rows += found
    except WrongResults as error:
        print(error, file=sys.stderr)
        return 1
    except (RuntimeError, ValueError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    print(*run.epilogue(), sep="\n")
    if arguments.choose:
        print(f"chosen: {write_choices(arguments.choose, choices(rows), run.about)}")
    return 0


def _progress(told: str) -> None:
    print(f"measure: {told}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
