"""A gate as a record: its findings, and every sample behind them."""

from dataclasses import replace
from pathlib import Path

from qbench.gate.result import GateResult
from qbench.measure.launch import Launch
from qbench.measure.records.kinds import GATE, GateCase, GateCheck, GateMetrics
from qbench.measure.records.record import append_record, make_record
from qbench.measure.records.record_files import kept_file


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
