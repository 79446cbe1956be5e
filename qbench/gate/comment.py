"""The gate's findings as Markdown for a pull request: changes first, then all checks."""

from collections.abc import Sequence

from qbench.gate.check import ALPHA, POWER, Check
from qbench.gate.result import GateResult
from qbench.words.read import count, markdown_grid, short_commit

HEADING = ["verdict", "case", "metric", "baseline", "now", "change for the worse [95 %]", "p", "would see"]
NUMERIC = [False, False, False, True, True, True, True, True]
NONE = "n/a"


def markdown(result: GateResult) -> str:
    """Red or green and why, the checks that moved, and below a fold all checks, each with the smallest loss that it
    could have found."""
    changed = [check for check in result.checks if check.is_gate and check.verdict in ("worse", "better")]
    parts = [f"## qbench gate: {'RED' if result.is_red else 'green'}", sentence(result)]
    parts += [f"**{case} no longer runs**: {error}" for case, error in result.failed.items()]
    parts += [f"**{case} is not the model of one rank**: {how}" for case, how in result.apart.items()]
    if changed:
        parts.append(table(changed))
    if result.checks:
        summary = f"<summary>All {count(len(result.checks), 'check')}, and what each would see</summary>"
        parts.append(f"<details>{summary}\n\n{table(result.checks)}\n\n{LEGEND}\n\n</details>")
    parts += [f"Not checked: {reason}." for reason in result.not_checked]
    parts.append(origin(result))
    return "\n\n".join(parts) + "\n"


def plain(result: GateResult) -> str:
    """The same for a terminal: every check in one table."""
    parts = [table(result.checks)] if result.checks else []
    parts += [f"{case} no longer runs: {error}" for case, error in result.failed.items()]
    parts += [f"{case} is not the model of one rank: {how}" for case, how in result.apart.items()]
    parts += [f"not checked: {reason}" for reason in result.not_checked]
    return "\n\n".join([*parts, origin(result), sentence(result)]) + "\n"


LEGEND = (
    "A change is worse where its interval excludes 0, it exceeds what the same model shows against itself, and its "
    f"p value holds among all checks (Holm): without any change at most {100 * ALPHA:.0f} % of gates are red. "
    f"*would see*: the least loss that is found with a probability of {100 * POWER:.0f} %; *exact*: one byte."
)


def sentence(result: GateResult) -> str:
    """ "1 of 22 checks is worse: mean KLD of ref:llama q4_k_m by 3e-4 nats (p 0.0002 among all)." """
    gates = [check for check in result.checks if check.is_gate]
    if result.apart and not result.worse:
        return f"{count(len(result.apart), 'case')} on several ranks: not the model of one rank."
    if not result.worse:
        return f"None of {count(len(gates), 'check')} is worse." if not result.failed else "A case no longer runs."
    return f"{len(result.worse)} of {count(len(gates), 'check')} worse: {moved(result.worse)}."


def moved(checks: Sequence[Check]) -> str:
    """ "kld of ref:llama q4_k_m by 4.0e-04 nats (p 0.0001 among all); ..." """
    return "; ".join(f"{check.metric} of {check.case} by {_size(check)}{_sure(check)}" for check in checks)


def table(checks: Sequence[Check]) -> str:
    return markdown_grid([HEADING, *map(_cells, checks)], NUMERIC)


def origin(result: GateResult) -> str:
    """Suite, commits and machine."""
    about = result.about
    base, now = short_commit(*about.baseline_commit), short_commit(*about.commit)
    num_launches = max(map(len, result.launches.values()), default=0)
    launches = f"; processes per case and side: {num_launches}" if num_launches else ""
    return f"Suite {about.suite}; {now} against {base} ({about.baseline}); machine {about.machine}{launches}."


def _cells(check: Check) -> list[str]:
    verdict = f"**{check.verdict}**" if check.verdict == "worse" and check.is_gate else check.verdict
    return [
        verdict if check.is_gate else f"{verdict} (report)",
        check.case,
        check.metric,
        figure(check.baseline, check.unit),
        figure(check.now, check.unit),
        _change(check),
        NONE if check.adjusted_p is None else f"{check.adjusted_p:.2g}",
        _would_see(check),
    ]


def _would_see(check: Check) -> str:
    if check.is_exact:
        return "exact"
    return NONE if check.detectable is None else _loss(check.detectable, check).lstrip("+")


def _change(check: Check) -> str:
    loss = check.loss
    ends = ", ".join(_loss(end, check) for end in loss.interval or ())
    return _loss(loss.value, check) + (f" [{ends}]" if ends else "")


def _size(check: Check) -> str:
    return _loss(check.loss.value, check).lstrip("+")


def _sure(check: Check) -> str:
    return " (exact)" if check.adjusted_p is None else f" (p {check.adjusted_p:.2g} among all)"


def _loss(value: float, check: Check) -> str:
    """A KLD's in nats; all else as a share, small ones with the digits that show them."""
    if value == 0:
        return "0"
    if check.unit == "nats":
        return f"{value:+.1e} nats"
    return f"{100 * value:+.2f} %" if abs(value) >= 1e-3 else f"{100 * value:+.1e} %"


def figure(value: float, unit: str) -> str:
    """In the unit that people read: "3.44", "2.7e-03 nats", "98.2 %", "340.12 MB", "41200 tok/s"."""
    if unit == "nats":
        return f"{value:.2e}"
    if unit == "share":
        return f"{100 * value:.2f} %"
    if unit == "bytes":
        return f"{value / 1e6:.2f} MB" if value >= 1e6 else f"{value:.0f} B"
    return f"{value:.0f} tok/s" if unit == "tok/s" else f"{value:.4f}"
