"""How far a speed lies from itself, beside each row of the work that a sweep measured twice."""

from typing import TYPE_CHECKING

from qbench.compare.speed_floor import Work, kept_speed_floors
from qbench.measure.records.record_files import record_files
from qbench.store.load import Paths

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("pp", "tg")
FLOOR = "{}_floor"  # of a phase: a share of its speed


def with_floors(frame: "pd.DataFrame", paths: Paths) -> "pd.DataFrame":
    """`frame` of `load_records(paths)` with a FLOOR of each phase; as it is where no speed was measured twice."""
    floors = kept_speed_floors([str(file) for file in record_files(paths)])
    if not floors:
        return frame
    works = zip(*(frame[name].tolist() for name in Work.__slots__), strict=True)
    of_rows = [floors.get(Work(*work), {}) for work in works]
    columns = {FLOOR.format(phase): [of_row.get(f"{phase}_tok_s") for of_row in of_rows] for phase in PHASES}
    return frame.assign(**columns).astype(dict.fromkeys(columns, float))
