"""Noise floors of the models that a gate compares: from records, else measured once and kept next to the run."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from qbench.comparison.measured import Measuring
from qbench.comparison.noise_floor import measure_noise_floors
from qbench.comparison.rows import kept_floors
from qbench.gate.pairing import Pair
from qbench.measure.records.kinds import GateTestCase
from qbench.measure.records.record import Record, append_record
from qbench.measure.records.record_files import make_folder
from qbench.run.case import Case
from quant.present import present

Key = tuple[str, str]  # (fingerprint of the unquantized model, protocol hash)
FloorsOfModels = Mapping[Key, Mapping[str, float]]
FILE = "noise-floors.jsonl"


def floors_of(pairs: Iterable[Pair], paths: Iterable[Path], folder: Path) -> FloorsOfModels:
    """Each model's under each of its protocols.

    paths    records that may hold some
    folder   of the run; keeps the missing ones
    """
    kept = folder / FILE
    known = _known(paths, kept)
    for pair in pairs:
        key = key_of(pair.now)
        if key is not None and key not in known:
            make_folder(folder)
            for record in measure(pair.now):
                append_record(kept, record)
            known = _known(paths, kept)
            known.setdefault(key, {})
    return known


def key_of(record: Record) -> Key | None:
    """None if no quality was measured."""
    quality = record.figures.quality
    protocol = quality and quality.protocol
    return None if protocol is None else (_case_of(record).fingerprint or "", protocol.hash or "")


def measure(record: Record) -> list[Record]:
    """The model of a row against itself, on the row's own text and under its protocols."""
    case = _case_of(record)
    settings = present(case.quality)
    measuring = Measuring(
        text=settings.text,
        windows=settings.max_windows,
        protocols=settings.protocols,
        compute=case.compute if isinstance(case, Case) else None,
        threads=case.threads,
    )
    return measure_noise_floors(present(case.model), measuring)


def _case_of(record: Record) -> Case | GateTestCase:
    return record.case if isinstance(record.case, GateTestCase) else record.model_case


def _known(paths: Iterable[Path], kept: Path) -> dict[Key, Mapping[str, float]]:
    files = [str(path) for path in (*paths, kept) if path.exists()]
    return dict(kept_floors(files)) if files else {}
