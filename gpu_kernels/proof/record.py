"""Lines of results: each carries the machine, the versions and the commit that made it."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch
import triton

from gpu_kernels.fp8_triton import fp8_path
from gpu_kernels.launch import compute_capability
from gpu_kernels.proof.problems import peer_versions

SCHEMA = 2


def provenance(commit: str | None = None) -> dict:
    """Machine and versions of a measurement.

    commit  for a copy of the tree that has no history; otherwise git is asked, and "dirty" says if files differ
    """
    device = torch.cuda.current_device()
    gpu = torch.cuda.get_device_properties(device)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": gpu.name,
        "multiprocessors": gpu.multi_processor_count,
        "l2_bytes": gpu.L2_cache_size,
        "memory_bytes": gpu.total_memory,
        "fp8": fp8_path(compute_capability(device)),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            **peer_versions(),
        },
        "commit": commit or _git("rev-parse", "HEAD"),
        "dirty": None if commit else bool(_git("status", "--porcelain")),
    }


def append(path: Path, records: list[dict]) -> None:
    """Adds one JSON line a record at the end of the file, and waits until the disk has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"schema": SCHEMA} | record) + "\n" for record in records)
        file.flush()
        os.fsync(file.fileno())


def _git(*arguments: str) -> str:
    told = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, encoding="utf-8"
    )
    if told.returncode:
        raise RuntimeError("a result needs its commit: got a tree without git history; pass --commit HASH")
    return told.stdout.strip()
