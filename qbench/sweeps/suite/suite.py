"""Suite: the cases of a sweep."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from qbench.measure.launch import MAX_LAUNCHES
from qbench.quality.protocols.conventions import check_protocol
from qbench.run.axes import AXIS, SUITE_AXES, Axis
from qbench.run.choices import check_threads
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork
from qbench.sweeps.suite.rules import Rule
from quant.errors import InputError

SCHEMA = 2  # of the file: its keys and their meanings
MEASURED = ("eval", "tasks", "bench")  # the sections of measurements
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Suite:
    """The grid of its axes without the points of `exclude`; `eval`, `tasks` and `bench` are the measurements.

    axes      name of an axis -> its values, as the file has them; an axis that is not there has its usual value
    version   raised when the suite measures something else, so that its results stay apart
    launches  processes that measure each speed; None: 1
    calibration  None: the defaults
    """

    name: str
    axes: Values
    description: str = ""
    schema: int = SCHEMA
    version: int = 1
    exclude: tuple[Rule, ...] = ()
    eval: QualityWork | None = None
    tasks: TasksWork | None = None
    bench: SpeedWork | None = None
    launches: int | None = None
    calibration: CalibrationWork | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w][\w.+-]*", self.name):
            raise InputError(f"suite name is {self.name!r}, expected letters, digits and . + - _ (it names a folder)")
        if self.schema > SCHEMA:
            raise InputError(f"suite {self.name}: schema {self.schema}, this qbench knows {SCHEMA}; use a newer qbench")
        for name, values in self.axes.items():
            self._check_axis(AXIS[name], values)
        for threads in self.axes.get("threads", ()):
            if isinstance(threads, int):  # the only word is `axes.ALL`
                check_threads(threads, f"suite {self.name}: ")
        if self.eval is None and self.tasks is None and self.bench is None:
            raise InputError(f"suite {self.name}: neither eval, tasks nor bench is there, so nothing would be measured")
        for name in self.eval.protocols if self.eval else ():
            check_protocol(name)
        if self.launches is not None and not 1 <= self.launches <= MAX_LAUNCHES:
            raise InputError(f"suite {self.name}: launches is {self.launches}, expected 1 to {MAX_LAUNCHES}")
        for axis, section, work in (("question", "tasks", self.tasks), ("text", "eval", self.eval)):
            if axis in self.axes and (work is None or getattr(work, axis)):
                key = AXIS[axis].key
                raise InputError(f"suite {self.name}: {key} is an axis of {section}, which lack or already name it")
        if self.bench is None:
            self._check_of_speed()
        for axis, own in ((AXIS["context"], "depth"), (AXIS["batch"], "batch")):
            if self.bench and axis.name in self.axes and getattr(self.bench, own) != getattr(SpeedWork(), own):
                raise InputError(f"suite {self.name}: {axis.key} and bench's {own} say the same; give one of them")

    @classmethod
    def of(cls, name: str, models: tuple[str, ...], recipes: tuple[str, ...], **given: Any) -> Self:
        """A suite of these values of its axes, by their keys in a file, and of these fields."""
        given = {"models": models, "recipes": recipes, **given}
        axes = {axis.name: given.pop(axis.key) for axis in SUITE_AXES if axis.key in given}
        return cls(name, {axis: values for axis, values in axes.items() if values is not None}, **given)

    def with_values(self, axis: str, values: tuple[Any, ...]) -> Self:
        return replace(self, axes={**self.axes, axis: values})

    def _check_axis(self, axis: Axis, values: tuple[Any, ...]) -> None:
        if not values:
            raise InputError(f"suite {self.name}: {axis.key} is empty, expected at least one")
        if len(set(values)) != len(values):
            raise InputError(f"suite {self.name}: {axis.key} names the same twice: {', '.join(map(str, values))}")
        for value in values:
            if isinstance(value, int) and value < axis.least:
                raise InputError(f"suite {self.name}: {axis.key} has {value}, expected {axis.least} or more")

    def _check_of_speed(self) -> None:
        """Axes that change no token's logits need something that is timed."""
        for axis in SUITE_AXES:
            values = self.axes.get(axis.name, ())
            if axis.of_speed and (values if axis.name != "threads" else values[1:]):
                raise InputError(
                    f"suite {self.name}: {axis.key} changes speed alone, and there is no bench; leave it out"
                )
