"""The result of a gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from qbench.gate.check import Check
from qbench.measure.launch import Launch
from quant.json_data import JsonData

Commit = tuple[str | None, bool | None]  # (hash, whether the tree was changed)


@dataclass(frozen=True, slots=True)
class GateAbout(JsonData):
    """The two sides of the comparison, the machine, and the time that it took."""

    suite: str
    baseline: str
    baseline_commit: Commit
    commit: Commit
    machine: str
    seconds: float


@dataclass(frozen=True, slots=True)
class GateReport(JsonData):
    """A gate as `--json` prints it."""

    json_flat: ClassVar[tuple[str, ...]] = ("about",)
    json_omits: ClassVar[tuple[str, ...]] = ("apart",)

    about: GateAbout
    red: bool
    failed: dict[str, str]
    not_checked: list[str]
    checks: list[Check]
    apart: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """checks        with their verdicts
    failed        case -> why it no longer runs, if the baseline has it
    not_checked   cases that were left out, each with its reason
    launches      name of a case -> times of each of its launches
    apart         model, recipe and division -> how far its logits are from those of one rank, if that is too far
    """

    checks: Sequence[Check]
    about: GateAbout
    failed: Mapping[str, str] = field(default_factory=dict)
    not_checked: Sequence[str] = ()
    launches: Mapping[str, Sequence[Launch]] = field(default_factory=dict)
    apart: Mapping[str, str] = field(default_factory=dict)

    @property
    def worse(self) -> list[Check]:
        return [check for check in self.checks if check.is_gate and check.verdict == "worse"]

    @property
    def is_red(self) -> bool:
        return bool(self.failed or self.worse or self.apart)

    def report(self) -> GateReport:
        still = dict(self.failed), list(self.not_checked), list(self.checks)
        return GateReport(self.about, self.is_red, *still, dict(self.apart))
