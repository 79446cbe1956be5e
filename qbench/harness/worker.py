"""`python -m qbench.harness.worker`: one job in a process of its own, JSON in on stdin, JSON lines out on stdout.

A process for each job makes the peak of its memory its own, and a crash one row's error.

in    {"job": name, ...arguments}
out   {"progress": [done, total, what]}*, then {"result": {...}} or {"error": "one line"}
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any

from quant.errors import InputError

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> int:
    parent = os.getppid()
    channel = take_stdout()
    die_with_parent(parent)
    job = json.load(sys.stdin)
    try:
        from qbench.harness.jobs import JOBS

        result = JOBS[job.pop("job")](**job, progress=lambda *state: send(channel, {"progress": state}))
    except (InputError, NotImplementedError, RuntimeError, OSError, MemoryError) as error:
        send(channel, {"error": " ".join(str(error).split()) or type(error).__name__})
        return 1
    send(channel, {"result": result})
    return 0


def take_stdout() -> int:
    """The pipe to the parent under a number of its own; whatever libraries print goes to stderr instead."""
    channel = os.dup(1)
    os.dup2(2, 1)
    return channel


def die_with_parent(parent: int) -> None:
    """A sweep that is killed takes its worker along, so that none writes into the next sweep's files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request
            os._exit(1)


def send(channel: int, message: dict[str, Any]) -> None:
    data = json.dumps(message, allow_nan=False).encode() + b"\n"
    while data:
        data = data[os.write(channel, data) :]


if __name__ == "__main__":
    sys.exit(main())
