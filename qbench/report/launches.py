"""Speeds over several launches next to each row of records that hold them."""

import math
from typing import TYPE_CHECKING

from qbench.compare.kept_launches import kept_launches
from qbench.measure.records.record_files import record_files
from qbench.store.load import Paths

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("pp", "tg")
LAUNCHES = "{}_launches"  # of a phase: how many
SPREAD, FREEDOM = "{}_launch_spread", "{}_launch_freedom"  # standard deviation of the logarithms, pooled
LOW, HIGH = "{}_launch_low", "{}_launch_high"  # 95 %
OF_PHASE = (LAUNCHES, SPREAD, FREEDOM, LOW, HIGH)


def with_launches(frame: "pd.DataFrame", paths: Paths) -> "pd.DataFrame":
    """`frame` of `load_records(paths)` with the mean of the launches as speed, and OF_PHASE; as it is without launches.

    Rows of work that no row measured in several launches keep their speed and have none of OF_PHASE.
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
        columns[LOW.format(phase)] = [one and one.low for one in speeds]
        columns[HIGH.format(phase)] = [one and one.high for one in speeds]
    return frame.assign(**columns).astype(dict.fromkeys(columns, float))
