"""Looks at the held-out text while it is scored, so that a clear winner ends the check early.

Each look sees all windows so far. An error in any of the looks has at most the probability of one look times their
number (union bound), so p values are multiplied by that number.
"""

from collections.abc import Sequence
from dataclasses import replace

from qbench.measure.quality_figures import Blocks
from qbench.quality.protocols.scoring import Scoring
from qbench.statistics.intervals import MIN_BLOCKS

SHARES = (4, 2)  # of the windows that the looks before the last have seen: a quarter, a half


def look_ends(num_windows: int, exhaustive: bool) -> list[int]:
    """Number of windows at each look, the last at all of them. exhaustive: there is one look"""
    early = [] if exhaustive else [num_windows // share for share in SHARES]
    return [end for end in early if end >= MIN_BLOCKS] + [num_windows]


def part_of(scoring: Scoring, start: int, end: int) -> Scoring:
    """The windows from `start` to `end`, for a protocol with a block per window."""
    assert scoring.block_unit == "window" and scoring.units is None
    windows = [replace(window, block=place) for place, window in enumerate(scoring.windows[start:end])]
    return Scoring(scoring.protocol, windows, scoring.block_unit)


def joined(parts: Sequence[Blocks]) -> Blocks:
    """The blocks of all parts, in their order."""
    return Blocks(
        parts[0].unit,
        tokens=_column(parts, "tokens"),
        nll=_column(parts, "nll"),
        kld=_column(parts, "kld"),
        same_top=_column(parts, "same_top"),
    )


def _column(parts: Sequence[Blocks], name: str) -> list | None:
    values = [getattr(part, name) for part in parts]
    return None if values[0] is None else [each for some in values for each in some]
