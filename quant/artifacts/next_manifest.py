"""The manifest of a GGUF file that is about to get its name.

A model and its manifest are two files, so a run can be killed between their renames. The manifest is therefore written
first, under a hidden name that gives the file's inode, time and size. The file keeps all three when it is renamed: if
the file that now has the model's name is the one meant, this manifest is its own, else an older run's still is.
"""

import os
from pathlib import Path

from quant.atomic import fsync


def write_next(model: Path, manifest: Path, text: str) -> None:
    """Write the manifest of the finished temporary file `model` next to the `manifest` that it will replace."""
    for old in manifest.parent.glob(f"{_prefix(manifest)}*"):
        old.unlink(missing_ok=True)
    path = _next_path(model, manifest)
    try:
        path.write_text(text, encoding="utf-8")
        fsync(path)
        fsync(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def settle(model: Path, manifest: Path) -> Path:
    """The path of the model's manifest, which gets its own name now if a killed run did not give it.

    In a folder that cannot be written the manifest stays under its hidden name.
    """
    if not model.is_file():
        return manifest
    path = _next_path(model, manifest)
    try:
        os.replace(path, manifest)
    except FileNotFoundError:  # as usual
        return manifest
    except OSError:
        return path if path.is_file() else manifest
    return manifest


def _prefix(manifest: Path) -> str:
    return f".{manifest.name}.next-"


def _next_path(model: Path, manifest: Path) -> Path:
    about = model.stat()
    return manifest.with_name(f"{_prefix(manifest)}{about.st_ino}-{about.st_mtime_ns}-{about.st_size}")
