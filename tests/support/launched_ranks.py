"""Ranks as processes of their own, with the environment that torchrun gives them, and without its two seconds."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.waits import WAIT_S

from qbench.rendezvous import hold_port


@dataclass
class Ended:
    """The exit status of a rank, and its output."""

    status: int
    out: str
    err: str


class Rank:
    """A process that the nursery forks."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], code: str | None = None) -> None:
        self.out, theirs_out = os.pipe()
        self.err, theirs_err = os.pipe()
        self.news, theirs_news = os.pipe()
        request = json.dumps({"argv": list(argv), "env": env, "code": code}).encode()
        theirs = [theirs_out, theirs_err, theirs_news]
        socket.send_fds(nursery(), [request], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self._read = {self.out: b"", self.err: b"", self.news: b""}
        self._open = set(self._read)
        while b"\n" not in self._read[self.news]:
            self._take(WAIT_S)
        self.pid = int(self._read[self.news].split()[0])

    def _take(self, wait_s: float) -> None:
        """Read all output so far; wait for the first. raises TimeoutError"""
        ready, _, _ = select.select(list(self._open), [], [], wait_s)
        if not ready:
            raise TimeoutError(f"a rank said nothing for {wait_s:g} s")
        for descriptor in ready:
            data = os.read(descriptor, 1 << 16)
            self._read[descriptor] += data
            if not data:
                self._open.remove(descriptor)
                os.close(descriptor)

    def wait_for_output(self) -> None:
        """Return when the rank has printed something."""
        while not self._read[self.out]:
            self._take(WAIT_S)

    def wait_for_error(self, word: str) -> str:
        """Everything on stderr once it has the word."""
        while word.encode() not in self._read[self.err]:
            self._take(WAIT_S)
            assert self.err in self._open, f"the rank ended with {self._read[self.err].decode()!r}"
        return self._read[self.err].decode()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, wait_s: float = WAIT_S) -> Ended:
        """Its end; a rank that does not end in time is killed, and the test fails."""
        deadline = time.monotonic() + wait_s
        try:
            while self._open:
                self._take(max(0.0, deadline - time.monotonic()))
        finally:
            self.kill()
        status = int(self._read[self.news].split()[1])
        return Ended(status, self._read[self.out].decode(), self._read[self.err].decode())

    def kill(self) -> None:
        if len(self._read[self.news].split()) < 2:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@cache
def nursery() -> socket.socket:
    """The socket of the process that forks ranks; it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    tests = str(Path(__file__).parents[1])
    environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "support.rank_nursery", str(theirs.fileno())]
    subprocess.Popen(command, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    return ours


@cache
def _held() -> list[socket.socket]:
    """Until this process ends"""
    return []


def free_port() -> int:
    """A port that no other program gets by chance, and that ranks can have."""
    _held().append(hold_port())
    return _held()[-1].getsockname()[1]


def start_ranks(commands: Sequence[Sequence[str]], code: str | None = None) -> list[Rank]:
    """One process per command line; they are all on this host.

    code   a script that gets the command line; None: qbench
    """
    size, port = str(len(commands)), str(free_port())
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [Rank(command, {**common, "RANK": str(rank)}, code) for rank, command in enumerate(commands)]


def run_ranks(*commands: Sequence[str], code: str | None = None) -> list[Ended]:
    """The ends of all."""
    ranks = start_ranks(commands, code)
    try:
        return [rank.end() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
