"""Proofs of each op, by the code and the records: `python -m gpu_kernels.measured` (MEASURED.md)."""

import json
from pathlib import Path

from gpu_kernels.proof.compile import ARCHITECTURES
from gpu_kernels.proof.contenders import OURS
from gpu_kernels.proof.problems import Problem, all_ops, family, problems_of, refusal

FILE = Path(__file__).parent / "MEASURED.md"
RECORDS = Path("results/gpu")
BEGIN, END = "<!-- gpu_kernels.measured begin -->", "<!-- gpu_kernels.measured end -->"
NOT_RUN = "not yet"


def table(records: Path) -> str:
    """One row per op, from the last record of the op's most important problem.

    records  the folder of FAMILY.jsonl that `gpu_kernels.measure` appends to
    """
    lines = ["| op | interpreted against its oracle | compiled for | measured on a GPU |", "| --- | --- | --- | --- |"]
    for op in all_ops():
        problems = problems_of(op)
        interpreted = "yes" if any(problem.is_interpreted for problem in problems) else "no"
        timed = [problem for problem in problems if problem.is_timed]
        compiled = ", ".join(f"sm_{arch}" for arch in ARCHITECTURES if not all(refusal(p, arch) for p in timed))
        lines.append(f"| `{op}` | {interpreted} | {compiled} | {measured(timed[0], records)} |")
    return "\n".join(lines)


def measured(problem: Problem, records: Path) -> str:
    """Where, of which commit, and how fast; the measurement starts with a check of every problem."""
    path = records / f"{family(problem.op.name)}.jsonl"
    rows = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    wanted = (problem.op.name, problem.label, OURS)
    found = [row for row in rows if (row["op"], row["label"], row["impl"]) == wanted and "us" in row]
    if not found:
        return NOT_RUN
    last = found[-1]
    share = "" if last["share"] is None else f", {last['share']:.0%} of {last['bound']}"
    return f"{last['gpu']}, {last['commit'][:10]}: {problem.label} in {last['us']:.1f} us{share}"


def written(text: str, rows: str) -> str:
    """The file's text with these rows between its markers."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(), table(RECORDS)))
