"""`StepTime`: the seconds of one decode step of a model within a memory limit, and its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class StepTime(JsonRow):
    """Seconds of a decode step, predicted or measured.

    compute_s   step_s without the waits: with the processor time of the reads that run meanwhile
    wait_s      that computation waits for weights
    disk_s      during which the disk reads
    """

    step_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    disk_s: float = 0.0
    disk_bytes: float = 0.0

    @classmethod
    def median_of(cls, steps: Sequence["StepTime"]) -> "StepTime":
        """The median of each part."""
        return cls(*(median(getattr(one, part) for one in steps) for part in cls.__slots__))
