"""Counts and commits as a sentence says them."""

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
