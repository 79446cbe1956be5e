"""Proofs of each op, by the code and the records: `python -m gpu_kernels.measured` writes MEASURED.md and the table of
results/gpu/README.md.
"""

import json
from pathlib import Path

from gpu_kernels.proof.compile import ARCHITECTURES
from gpu_kernels.proof.contenders import OURS
from gpu_kernels.proof.problems import Problem, all_ops, family, problems_of, refusal

FILE = Path(__file__).parent / "MEASURED.md"
RECORDS = Path("results/gpu")
BEGIN, END = "<!-- gpu_kernels.measured begin -->", "<!-- gpu_kernels.measured end -->"
NOT_RUN = "not yet"
PAGE = Path("results/gpu/README.md")


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
    rows = _rows(records / f"{family(problem.op.name)}.jsonl")
    wanted = (problem.op.name, problem.label, OURS)
    found = [row for row in rows if (row["op"], row["label"], row["impl"]) == wanted and "us" in row]
    if not found:
        return NOT_RUN
    last = found[-1]
    share = "" if last["share"] is None else f", {last['share']:.0%} of {last['bound']}"
    return f"{last['gpu']}, {last['commit'][:10]}: {problem.label} in {last['us']:.1f} us{share}"


def results_table(records: Path) -> str:
    """One row per problem of the last run that timed it: the default configuration, the fastest one, and the peers.

    records  as in `table`
    """
    lines = ["| op | problem | us | of the limit | fastest configuration | against peers | commit |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for path in sorted(records.glob("*.jsonl")):
        runs: dict[tuple[str, str], list[dict]] = {}
        for row in _rows(path):
            problem = runs.setdefault((row["op"], row["label"]), [])
            if problem and (problem[0]["time"], problem[0]["commit"]) != (row["time"], row["commit"]):
                problem.clear()
            problem.append(row)
        ops = list(dict.fromkeys(op for op, _ in runs))
        lines += [_result_line(runs[problem]) for problem in sorted(runs, key=lambda one: ops.index(one[0]))]
    return "\n".join(lines)


def _result_line(rows: list[dict]) -> str:
    """Rows of one problem in one run, the default configuration first."""
    ours, timed = rows[0], [row for row in rows if "us" in row]
    configured = [row for row in timed if row["impl"].startswith(f"{OURS} ") and "tops" in row]
    fastest = min(configured, key=lambda row: row["us"], default=None)
    best = f"`{fastest['impl'].removeprefix(f'{OURS} ')}` {fastest['us']:.1f} us" if fastest else ""
    least = min(row["us"] for row in (ours, fastest) if row)
    peers = [f"{row['impl']} {row['us'] / least:.2f}" for row in timed if "ours_times_as_fast" in row]
    share = "" if ours["share"] is None else f"{ours['share']:.0%} of {ours['bound']}"
    cells = (f"`{ours['op']}`", ours["label"], f"{ours['us']:.1f}", share, best, "; ".join(peers), ours["commit"][:10])
    return f"| {' | '.join(cells)} |"


def _rows(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def written(text: str, rows: str) -> str:
    """The file's text with these rows between its markers."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(encoding="utf-8"), table(RECORDS)), encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results_table(RECORDS)), encoding="utf-8")
