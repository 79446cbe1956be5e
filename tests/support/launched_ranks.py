"""Ranks as processes of their own, with the environment that torchrun gives them, and without its two seconds."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

WAIT_S = 90.0


@dataclass
class Ended:
    """How a rank ended."""

    status: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_ranks(commands: Sequence[Sequence[str]]) -> list[subprocess.Popen]:
    """One process per command line of `python -m qbench`; they are all on this host."""
    size, port = str(len(commands)), str(free_port())
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "qbench", *command],
            env={**os.environ, **common, "OMP_NUM_THREADS": "1", "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]


def wait_for(processes: Sequence[subprocess.Popen]) -> list[Ended]:
    """The ends of all; those that do not end in time are killed, and the test fails."""
    try:
        outputs = [process.communicate(timeout=WAIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Ended(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def run_ranks(*commands: Sequence[str]) -> list[Ended]:
    return wait_for(start_ranks(commands))
