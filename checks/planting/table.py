"""Verdicts as a Markdown table, and the share of faults that each run finds."""

from collections.abc import Sequence

from checks.planting.search import Verdict

HEADING = "| fault | file | kind | test | test-all | seen by |\n|---|---|---|---|---|---|"


def row(verdict: Verdict) -> str:
    fault = verdict.fault
    in_test, in_all = verdict.found_by == "test", verdict.found_by != ""
    answers = (
        ["unusable"] * 2 if verdict.problem else ["found" if found else "**missed**" for found in (in_test, in_all)]
    )
    seen_by = (verdict.problem or verdict.seen_by).replace("|", "\\|").replace("\n", " ")
    return f"| {fault.id} | {fault.file} | {fault.kind} | {' | '.join(answers)} | {seen_by} |"


def shares(verdicts: Sequence[Verdict]) -> tuple[float, float]:
    """Share of usable faults that `test` finds, and share that `test-all` finds."""
    usable = [verdict for verdict in verdicts if not verdict.problem]
    counts = (sum(one.found_by == "test" for one in usable), sum(one.found_by != "" for one in usable))
    return tuple(count / max(1, len(usable)) for count in counts)


def summary(verdicts: Sequence[Verdict]) -> str:
    usable = sum(not verdict.problem for verdict in verdicts)
    in_test, in_all = shares(verdicts)
    line = f"{usable} faults: test finds {in_test * usable:.0f} ({in_test:.0%}), "
    return line + f"test-all finds {in_all * usable:.0f} ({in_all:.0%})"
