"""A gate as a record: what it found, and every sample that it judged by."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qbench.gate.launches import PEAK, Launch
from qbench.gate.result import GateResult
from qbench.measure.records.kinds import OtherCase, OtherMetrics
from qbench.measure.records.record import append_record, make_record
from qbench.measure.records.record_files import kept_file

KIND = "gate"


def keep_gate(target: Path, result: GateResult) -> None:
    """Append one row to `target`, a file or a folder of one file a machine."""
    found = result.as_json()
    case = {"kind": KIND, **{name: found[name] for name in ("suite", "baseline", "baseline_commit")}}
    metrics = {name: found[name] for name in ("red", "failed", "not_checked", "checks", "seconds")}
    launches = {name: list(map(rounded, of_case)) for name, of_case in result.launches.items()}
    record = make_record(OtherCase.from_json(case), OtherMetrics.from_json(metrics | {"launches": launches}))
    append_record(kept_file(target, record.machine.id), record)


def rounded(launch: Launch) -> Mapping[str, Sequence[Any]]:
    """Seconds to the microsecond, 1e-4 of the shortest sample worth taking: a third of the digits."""
    return {
        name: sides if name == PEAK else [[round(seconds, 6) for seconds in side] for side in sides]
        for name, sides in launch.items()
    }
