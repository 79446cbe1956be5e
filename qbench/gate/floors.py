"""Noise floors of the models that a gate compares: from records, else measured once and kept beside the run."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from qbench.compare.kept_floor import kept_floors
from qbench.compare.measured import Measuring
from qbench.gate.pairing import Pair, Record
from qbench.harness.records.record import append_record
from qbench.harness.records.record_files import make_folder

Key = tuple[str, str]  # (fingerprint of the unquantized model, protocol hash)
Floors = Mapping[Key, Mapping[str, float]]
FILE = "noise-floors.jsonl"


def floors_of(pairs: Iterable[Pair], paths: Iterable[Path], folder: Path) -> Floors:
    """Each model's under its protocol; a model whose protocol is measured in another way than the default has none.

    paths    records that may hold some
    folder   of the run, where those that are missing are kept
    """
    kept = folder / FILE
    known = _known(paths, kept)
    for pair in pairs:
        key = key_of(pair.now)
        if key is not None and key not in known:
            make_folder(folder)
            append_record(kept, measure(pair.now))
            known = _known(paths, kept)
            known.setdefault(key, {})
    return known


def key_of(record: Record) -> Key | None:
    """None where no quality was measured."""
    protocol = record["metrics"].get("protocol")
    return protocol and (record["case"]["fingerprint"], protocol["hash"])


def measure(record: Record) -> Record:
    """The model of a row against itself, on the row's own text."""
    from qbench.compare.noise_floor import measure_noise_floor

    case = record["case"]
    settings = case["eval"]
    return measure_noise_floor(
        case["model"], Measuring(text=settings["text"], windows=settings["max_windows"], threads=case["threads"])
    )


def _known(paths: Iterable[Path], kept: Path) -> dict[Key, Mapping[str, float]]:
    files = [str(path) for path in (*paths, kept) if path.exists()]
    return dict(kept_floors(files)) if files else {}
