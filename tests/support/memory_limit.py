"""A process under a limit of the kernel's memory controller, page cache included."""

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/memory")  # version 1


NEEDS = "needs the memory controller of cgroup version 1, and root"


def can_limit() -> bool:
    return (CONTROLLER / "memory.limit_in_bytes").exists() and os.geteuid() == 0


@dataclass(frozen=True, slots=True)
class Limited:
    """A process that has ended: its output, and the most memory that it and its page cache took."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int


def run_within(limit_bytes: int, command: Sequence[str], timeout_s: float = 120) -> Limited:
    """Skips the test on a system that cannot limit memory so."""
    with limited_group(limit_bytes) as group:
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", enter, "sh", *command], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        peak = int((group / "memory.max_usage_in_bytes").read_text())
    return Limited(done.returncode, done.stdout, done.stderr, peak)


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path]:
    """A group of processes that may allocate so much together; a process joins it by writing to cgroup.procs."""
    if not can_limit():
        import pytest  # scripts without it ask first

        pytest.skip(NEEDS)
    group = CONTROLLER / f"qbench-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield group
    finally:
        group.rmdir()
