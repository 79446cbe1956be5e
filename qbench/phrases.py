"""Counts and commits as a sentence says them."""

from collections.abc import Collection, Sequence

# The definition is in `qbench.speed.shares`.
ROOFLINE_LEGEND = (
    "share of the roofline: the median over the rounds of least time / time, at the bandwidth of the same round"
)


def count(number: float, thing: str) -> str:
    """ "1 core", "2 cores" """
    return f"{number:.0f} {thing}" + ("" if number == 1 else "s")


def short_commit(commit: str | None, dirty: bool | None) -> str:
    if not isinstance(commit, str):
        return "unknown"
    return commit[:10] + ("+changes" if dirty else "")


def units_notes(units: Sequence[Collection[str]]) -> list[str]:
    """The units that operations are compared with; nothing if no row names any. units: of each row; empty if older"""
    names = sorted({name for of_row in units for name in of_row})
    older = sum(not of_row for of_row in units)
    if not names:
        return []
    rest = f", in {count(older, 'older row')} at the arithmetic that ran" if older else ""
    return [f"operations at the strongest unit that could do them: {', '.join(names)}{rest}"]
