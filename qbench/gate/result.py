"""The result of a gate, and the record of it: its findings, and every sample behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from qbench.gate.check import Check
from qbench.measure.launch import Launch
from qbench.measure.records.kinds import GATE, GateCase, GateCheck, GateMetrics
from qbench.measure.records.record import append_record, make_record
from qbench.measure.records.record_files import kept_file
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


def keep_gate(target: Path, result: GateResult) -> None:
    """Append one row to `target`, a file or a folder of one file per machine."""
    about, found = result.about, result.report()
    case = GateCase(GATE, about.suite, about.baseline, about.baseline_commit)
    metrics = GateMetrics(
        red=found.red,
        failed=found.failed,
        not_checked=found.not_checked,
        checks=[GateCheck.from_json(check.to_json()) for check in found.checks],
        seconds=about.seconds,
        launches={name: list(map(rounded, of_case)) for name, of_case in result.launches.items()},
    )
    record = make_record(case, metrics)
    append_record(kept_file(target, record.machine.id), record)


def rounded(launch: Launch) -> Launch:
    """Seconds to the microsecond, 1e-4 of the shortest sample worth taking: a third of the digits."""
    seconds = {
        phase: [[round(sample, 6) for sample in side] for side in sides] for phase, sides in launch.seconds.items()
    }
    return replace(launch, seconds=seconds)
