"""The first steps of a process that works for another: speak to it on a pipe of their own, and end when it ends."""

import ctypes
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def take_stdout() -> int:
    """The pipe to the parent under a number of its own; whatever libraries print goes to stderr instead."""
    channel = os.dup(1)
    os.dup2(2, 1)
    return channel


def send(channel: int, message: dict[str, Any]) -> None:
    data = json.dumps(message, allow_nan=False).encode() + b"\n"
    while data:
        data = data[os.write(channel, data) :]


def die_with_parent(parent: int) -> None:
    """A sweep that is killed takes its workers along, so that no worker writes into the next sweep's files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request
            os._exit(1)
