"""The record of the baseline that each case is compared with, and refusals of files that are no baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.measure.host.machine import Machine
from qbench.measure.records.record import Record, read_records
from qbench.measure.records.record_files import record_files
from qbench.run.case import Case
from quant.errors import InputError

# Axes that make two cases the same test. The bytes of the model or of a recipe may have changed: then that change is
# tested. The protocol distinguishes texts and windows.
SAME = (
    *("model", "recipe", "kv_format", "cache", "policy", "prefill", "kv_ram"),
    *("compute", "isa", "device", "division", "threads", "batch"),
)
SAME_WORK = ("pp", "tg", "depth")
# Fields that distinguish two machines: the processor, and those that the id is a hash of.
HARDWARE = ("cpu", "processor", "flags", "features", "cores", "memory_gib", "architecture")

CaseIdentity = tuple[str | int | None, ...]  # the values of SAME, then those of SAME_WORK


@dataclass(frozen=True, slots=True)
class Pair:
    """One case: its row in the baseline and now."""

    name: str
    baseline: Record
    now: Record

    @property
    def is_elsewhere(self) -> bool:
        """Whether the baseline's row is of another machine, or of another processor with the same id."""
        return not self.baseline.machine.runs_like(self.now.machine)

    @property
    def elsewhere(self) -> str:
        return difference(self.baseline.machine, self.now.machine)


def pair_cases(
    now: Iterable[Record],
    baseline: Iterable[Record],
    where: str,
    *,
    any_machine: bool = False,
    may_lack: bool = False,
) -> list[Pair]:
    """The cases of `now`, each with the baseline's latest row of this machine.

    where         the baseline's name, for messages
    any_machine   take a row of another machine if this one has no row; of one that rounds the same way if there is one
    may_lack      leave out cases that the baseline has no row of, see `lacking`
    raises        InputError for cases that the baseline lacks, or has of another machine only
    """
    past, pairs, missing = by_case(baseline), [], []
    latest = [rows[-1] for rows in by_case(now).values()]
    for record, name in zip(latest, names_of([record.model_case for record in latest]), strict=True):
        candidates, ours = past.get(_identity(record.model_case), []), record.machine
        of_id = [row for row in candidates if row.machine.id == ours.id]
        here = [row for row in of_id if row.machine.runs_like(ours)] or of_id
        if not candidates:
            missing.append(name + _nearest(record.model_case, past))
        elif here or any_machine:
            comparable = [row for row in candidates if row.machine.rounds_like(ours)]
            pairs.append(Pair(name, (here or comparable or candidates)[-1], record))
        else:
            raise InputError(f"{where} is of another machine: {difference(candidates[-1].machine, ours)}")
    if missing and not may_lack:
        raise InputError(f"{where} lacks {', '.join(missing)}; measure it again with the suite as it is now")
    return pairs


def lacking(now: Iterable[Record], baseline: Iterable[Record]) -> list[str]:
    """Names of the cases that the baseline has no row of."""
    past, cases = by_case(baseline), [record.model_case for record in now]
    return [name for case, name in zip(cases, names_of(cases), strict=True) if _identity(case) not in past]


def _nearest(case: Case, past: Iterable[CaseIdentity]) -> str:
    """ " (has threads 2, not 1)": settings in which the last row of the same model and recipe differs."""
    key, axes = _identity(case), SAME + SAME_WORK
    alike = [other for other in past if other[:2] == key[:2]]
    if not alike:
        return ""
    unlike = [i for i in range(2, len(axes)) if alike[-1][i] != key[i]]
    return " (has " + ", ".join(f"{axes[i]} {alike[-1][i]}, not {key[i]}" for i in unlike) + ")"


def read_baseline(path: Path) -> list[Record]:
    """The rows of a file, or of every .jsonl file of a folder. raises InputError if there is no row"""
    records = [record for file in record_files(path) for record in read_records(file) if is_measured(record)]
    if not records:
        raise InputError(f"{path} holds no measured rows; `qbench sweep` and `qbench report --keep` write some")
    return records


def is_measured(record: Record) -> bool:
    """Whether it is a case of a sweep that did not fail: the file may hold records of other kinds."""
    return record.is_ok and record.case.kind is None


def by_case(records: Iterable[Record]) -> dict[CaseIdentity, list[Record]]:
    """The rows of each case, in order of time."""
    found: dict[CaseIdentity, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.time):
        found.setdefault(_identity(record.model_case), []).append(record)
    return found


def names_of(cases: Sequence[Case]) -> list[str]:
    """ "ref:llama q4_k_m", or "ref:llama q4_k_m, threads 2" if others have that model and recipe."""
    keys, axes = list(map(_identity, cases)), SAME + SAME_WORK
    names = []
    for key in keys:
        alike = [other for other in keys if other[:2] == key[:2]]
        varied = [i for i in range(2, len(axes)) if any(other[i] != key[i] for other in alike)]
        names.append(", ".join([f"{key[0]} {key[1]}", *(f"{axes[i]} {key[i]}" for i in varied)]))
    return names


def _identity(case: Case) -> CaseIdentity:
    work = (getattr(case.speed, name) for name in SAME_WORK) if case.speed else (None for _ in SAME_WORK)
    return (*(getattr(case, name) for name in SAME), *work)


def difference(theirs: Machine, ours: Machine) -> str:
    """ "cores 4 there, 2 here; ...", the ids if all known fields of both are the same"""
    unlike = [name for name in HARDWARE if getattr(theirs, name) != getattr(ours, name)] or ["id"]
    return "; ".join(
        f"{name} {_shown(getattr(theirs, name))} there, {_shown(getattr(ours, name))} here" for name in unlike
    )


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
