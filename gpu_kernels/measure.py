"""Checks, then times, every kernel on this machine's GPU: `python -m gpu_kernels.measure`.

Exit code 0: measured, records appended. 1: a kernel is wrong, and nothing was timed. 2: no CUDA GPU, no such op, or
no commit to name.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

from gpu_kernels.measurement import Measurement, WrongResults, append, known_ops, line
from gpu_kernels.proof.contenders import OURS
from gpu_kernels.tuned import config_path

COMMAND = "python -m gpu_kernels.measure --choose"


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


def choices(rows: list[dict]) -> dict[str, dict[str, str]]:
    """op -> row -> the configuration whose times, over the best of each problem in that row, have the least product.

    rows  a run's records
    """
    times = defaultdict(dict)  # (op, row, label) -> configuration -> us
    for row in rows:
        name = row["impl"].removeprefix(f"{OURS} ")
        if row["row"] and name != row["impl"] and "us" in row:
            times[row["op"], row["row"], row["label"]][name] = row["us"]
    slowdowns = defaultdict(lambda: defaultdict(list))  # (op, row) -> configuration -> one for each problem
    for (op, row, _), us in times.items():
        for name, took in us.items():
            slowdowns[op, row][name].append(math.log(took / min(us.values())))
    found = defaultdict(dict)
    for (op, row), each in slowdowns.items():
        complete = {name: sum(taken) for name, taken in each.items() if len(taken) == max(map(len, each.values()))}
        found[op][row] = min(complete, key=complete.__getitem__)
    return dict(found)


def write_choices(folder: Path, found: dict[str, dict[str, str]], about: dict) -> Path:
    """Rows that this run has not measured stay as they were.

    about  record.provenance of the run
    """
    path = folder / config_path(about["gpu"]).name
    before = json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.exists() else {}
    merged = {op: before.get(op, {}) | found.get(op, {}) for op in sorted(before | found)}
    kept = {"made_with": COMMAND} | {key: about[key] for key in ("gpu", "commit", "time", "versions")}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept | {"chosen": merged}, indent=2) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
