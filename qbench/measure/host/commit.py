"""Which code measured: the git commit, whether the tree was dirty, and a hash of the code itself."""

import hashlib
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from quant.json_data import JsonData

ROOT = Path(__file__).resolve().parents[3]
# The code that an artifact's bytes come from.
QUANTIZING = ("quant", "cpu_kernels", "qbench/calibration", "qbench/runtime", "qbench/sources", "qbench/reference")
# Packages that a measurement depends on; the command line and the reports only show it.
MEASURED_BY = ("measure", "quality", "speed", "sweeps", "kernels", "versus")
MEASURING = (*QUANTIZING, "gpu_kernels", *(f"qbench/{folder}" for folder in MEASURED_BY))
# Changes that make a tree another than its commit. Records do not, or each would spoil the next one.
COUNTED = (".", ":(exclude)results")
CODE_SUFFIXES = (".py", ".cpp", ".h", ".inl", ".in")


@dataclass(frozen=True, slots=True)
class CodeVersion(JsonData):
    """commit and dirty are None outside a git checkout; code is 16 hex digits of the sources."""

    commit: str | None
    dirty: bool | None
    code: str


@cache
def code_version() -> CodeVersion:
    commit = _git("rev-parse", "HEAD") if (ROOT / ".git").exists() else None
    status = _git("status", "--porcelain", "--untracked-files=normal", "--", *COUNTED) if commit else None
    return CodeVersion(commit, None if status is None else bool(status), code_hash(MEASURING))


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, encoding="utf-8"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def code_hash(packages: tuple[str, ...]) -> str:
    """16 hex digits of the source files of these folders, so that an edit counts before it is committed."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in CODE_SUFFIXES and path.is_file():
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
