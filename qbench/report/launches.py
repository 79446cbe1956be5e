"""Speeds over several launches next to each row of records that hold them."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from qbench.comparison.kept_launches import kept_launches
from qbench.measure.metrics import Metrics
from qbench.measure.records.record_files import record_files
from qbench.store.load import Paths
from qbench.words.read import count

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("pp", "tg")
LAUNCHES = "{}_launches"  # of a phase: how many
SPREAD, FREEDOM = "{}_launch_spread", "{}_launch_freedom"  # standard deviation of the logarithms, pooled
LOW, HIGH = "{}_launch_low", "{}_launch_high"  # 95 %
SECONDS = "{}_launch_seconds"  # from the first launch to the last

OF_LAUNCHES = "a speed of one process has no interval; `qbench sweep SUITE --launches 3` measures several"


def launches_text(counts: Iterable[float], seconds: Iterable[float], spreads: Mapping[str, Iterable[float]]) -> str:
    """How many launches some speeds have, in which time they ran, and by how much they differ.

    counts, seconds   of each speed
    spreads           phase -> standard deviations of the logarithms, of every row
    """
    numbers = " or ".join(str(number) for number in sorted({int(each) for each in counts}))
    minutes = count(max(1, math.ceil(max(seconds) / 60)), "minute")
    told = " and ".join(f"{_from_to(of_rows)} % ({phase})" for phase, of_rows in spreads.items())
    return f"speeds: mean of {numbers} processes within {minutes}, which differ by {told} (standard deviation)"


def _from_to(spreads: Iterable[float]) -> str:
    """ "3.6 to 8.6", in percent, or "3.6" """
    found = sorted(spreads)
    return " to ".join(dict.fromkeys(f"{100 * end:.1f}" for end in (found[0], found[-1])))


def speed_text(metrics: Metrics, name: str) -> str | None:
    """ "2051 [1990, 2113]" of a row that was `joined`; "2051" of one process; None for no such speed"""
    value, figures = metrics.figure(name), metrics.speed and metrics.speed.figures
    if value is None:
        return None
    digits, ends = 1 if value < 100 else 0, ((figures and figures.interval) or {}).get(name)
    return f"{value:.{digits}f}" + (f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends else "")


def with_launches(frame: "pd.DataFrame", paths: Paths) -> "pd.DataFrame":
    """`frame` of `load_records(paths)` with the mean of the launches as speed, and six more columns per phase.

    The share of the roofline is the median over the launches.

    Without launches it stays as it is. Rows of work that no row measured in several launches keep
    their speed, and have no value in those columns.
    """
    kept = kept_launches([str(file) for file in record_files(paths)])
    if not kept:
        return frame
    rows = list(zip(*(frame[name].tolist() for name in ("key", "machine", "code")), strict=True))
    columns: dict[str, list[float | None]] = {}
    for phase in PHASES:
        name = f"{phase}_tok_s"
        found = [kept.get(row, {}).get(name) for row in rows]
        speeds = [None if one is None else one.estimate for one in found]
        columns[name] = [
            old if one is None else one.value for one, old in zip(speeds, frame[name].tolist(), strict=True)
        ]
        columns[LAUNCHES.format(phase)] = [one and one.num_launches for one in found]
        columns[SPREAD.format(phase)] = [one and one.error * math.sqrt(one.num_launches) for one in found]
        columns[FREEDOM.format(phase)] = [one and one.freedom for one in found]
        columns[SECONDS.format(phase)] = [one and one.seconds for one in found]
        columns[LOW.format(phase)] = [one and one.low for one in speeds]
        columns[HIGH.format(phase)] = [one and one.high for one in speeds]
        share = f"roofline_{phase}"
        columns[share] = [
            old if one is None or one.share is None or math.isnan(old) else one.share
            for one, old in zip(found, frame[share].tolist(), strict=True)
        ]
    return frame.assign(**columns).astype(dict.fromkeys(columns, float))
