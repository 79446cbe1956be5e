"""Paths of records: `results/<suite>/<machine id>.jsonl`, or any file or folder that is named."""

import os
from collections.abc import Iterable
from pathlib import Path

from qbench.words.written import real_path
from quant.atomic import fsync
from quant.errors import InputError

SUFFIX = ".jsonl"
FOLDERS = ("results", "runs")  # of a checkout: kept records, and those that sweeps wrote


def default_folders() -> list[Path]:
    """Those of FOLDERS below the working directory that have records. raises InputError if no folder has any"""
    found = [Path(name) for name in FOLDERS if any(Path(name).rglob(f"*{SUFFIX}"))]
    if not found:
        raise InputError(f"no records in {' or '.join(FOLDERS)} here; name files of them, or run `qbench sweep` first")
    return found


def record_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Each file that is named, and for a folder every SUFFIX file below it by name; no file comes twice.

    raises   InputError for a folder without any; the reader of a missing file raises the error
    """
    paths = [paths] if isinstance(paths, (str, Path)) else paths
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path}: no {SUFFIX} file of records in this folder; run `qbench sweep` first")
        for file in files:
            found.setdefault(real_path(file), file)
    return list(found.values())


def kept_file(target: Path, machine_id: str) -> Path:
    """File of a machine's rows: `target` if it names a file, else the machine's own file in that folder.

    raises   InputError if the folder cannot be made
    """
    if target.suffix == SUFFIX or target.is_file():
        return target
    try:
        make_folder(target)
    except OSError as error:
        raise InputError(f"{target}: cannot make the folder: {error.strerror}; choose another") from error
    return target / f"{machine_id}{SUFFIX}"


def check_writable(target: Path) -> None:
    """raises InputError unless the file, or a new one at its place, could be written now; leaves nothing behind"""
    if target.exists():
        if not os.access(target, os.W_OK):
            raise InputError(f"{target}: cannot write there: it is read-only; choose another")
        return
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{target}: cannot write there: {above} is no folder; choose another")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{target}: cannot write there: {above} is read-only; choose another")


def make_folder(folder: Path) -> None:
    """The folder with those above it, on disk, so that a crash does not take the files in it along."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync(folder.parent)
