"""`Case`: the definition of one measurement of a model, without its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from qbench.run.axes import Setup
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Setup):
    """One point of a suite's grid and its measurements; a part is None if it is not measured.

    recipe_sha256  of a recipe that is a file
    kv_format      of the KV cache, the recipe's own included
    memory         limit of the process, as a suite has it; None: no limit
    context        tokens that a sequence's cache holds at most
    speed          its batch is 1, as the batch is an axis
    kind, of       "again" and the key of the first row, for a speed that another process measures again
    launch         its number from 3 on
    """

    json_keys: ClassVar[Mapping[str, str]] = {"quality": "eval", "speed": "bench"}
    # Left out unless they are asked for, so that rows of older code keep their keys.
    json_omits: ClassVar[tuple[str, ...]] = (
        *Setup.json_omits,
        *("recipe_sha256", "memory", "tasks", "calibration", "kind", "of", "launch"),
    )

    model: str
    fingerprint: str | None = None
    recipe_sha256: str | None = None
    isa: str | None = None
    memory: str | None = None
    context: int | None = None
    batch: int = 1
    quality: QualityWork | None = None
    tasks: TasksWork | None = None
    speed: SpeedWork | None = None
    calibration: CalibrationWork | None = None
    kind: str | None = None
    of: str | None = None
    launch: int | None = None
