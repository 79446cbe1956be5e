"""What a gate comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from qbench.gate.check import Check
from qbench.gate.launches import Launch


@dataclass(frozen=True, slots=True)
class GateResult:
    """checks        with their verdicts
    failed        case -> why it no longer runs, where the baseline has it
    not_checked   what was left out, each with its reason
    about         suite, baseline and its commit, commit, machine, seconds
    launches      name of a case -> what each launch of it took
    """

    checks: Sequence[Check]
    failed: Mapping[str, str] = field(default_factory=dict)
    not_checked: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    launches: Mapping[str, Sequence[Launch]] = field(default_factory=dict)

    @property
    def worse(self) -> list[Check]:
        return [check for check in self.checks if check.is_gate and check.verdict == "worse"]

    @property
    def is_red(self) -> bool:
        return bool(self.failed or self.worse)

    def as_json(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        facts = {"red": self.is_red, "failed": dict(self.failed), "not_checked": list(self.not_checked)}
        return {**self.about, **facts, "checks": checks}
