"""Ranks: processes that hold one model together, joined through torch.distributed and started by torchrun."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qbench.rank_layout import RankLayout, check_world, farewells
from qbench.runtime.parallel.traffic import Traffic
from quant.errors import InputError

# After a time-out the ranks that wait for the same one end at about the same moment: so long for their words to come.
GRACE_S = 1.0
POLL_S = 0.02


class RankError(InputError):
    """Another rank ended or does not answer."""


class Ranks:
    """This rank's connections to the others.

    Values travel as contiguous float32 from rank to rank, so that every byte is counted and a failure has a name.

    timeout_s  longest wait for another rank
    traffic    counts of this rank
    place      the part of the run that is under way, for messages
    """

    def __init__(self, layout: RankLayout, timeout_s: float) -> None:
        import torch.distributed as dist  # slow, and of no use to one rank

        world = check_world(layout)
        self.rank, self.timeout_s = world.rank, timeout_s
        self.divide(layout)
        self.traffic = Traffic()
        self.place = "at the start"
        self._num_told = 0
        self._dist = dist
        timeout = timedelta(seconds=timeout_s)
        rendezvous = dist.rendezvous  # pyright: ignore[reportPrivateImportUsage]  documented under this name
        self._store, _, _ = next(iter(rendezvous("env://", timeout=timeout)))
        self._store.set(f"host/{self.rank}", json.dumps([socket.gethostname(), os.getpid()]))
        self._hosts = [json.loads(self._store.get(f"host/{rank}")) for rank in range(layout.num_ranks)]
        # Gloo names an interface after the host's name, which need not be one that others reach.
        dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=layout.num_ranks, timeout=timeout)

    def divide(self, layout: RankLayout) -> None:
        """Take another layout of as many ranks, for the models that are loaded from now on."""
        self.layout, self.lane, self.stage = layout, layout.lane(self.rank), layout.stage(self.rank)

    def lanes(self) -> list[int]:
        """Ranks of this stage, in the order of their lanes."""
        return [self.layout.rank(self.stage, lane) for lane in range(self.layout.tp)]

    def gather(self, x: Tensor, widths: Sequence[int] | None = None) -> list[Tensor]:
        """x [..., K] of every lane of this stage, in their order. widths: K of each lane; None: all have that of x"""
        lanes = self.lanes()
        x = x.contiguous()
        widths = widths or [x.shape[-1]] * len(lanes)
        parts = [
            x if rank == self.rank else torch.empty(*x.shape[:-1], width)
            for rank, width in zip(lanes, widths, strict=True)
        ]
        others = [(rank, part) for rank, part in zip(lanes, parts, strict=True) if rank != self.rank]
        self._exchange([(rank, x) for rank, _ in others], others)
        return parts

    def add(self, x: Tensor) -> Tensor:
        """The sum over the lanes of this stage: float32, added in the order of the lanes, so equal on all of them."""
        first, *rest = self.gather(x)
        total = first.clone()
        for part in rest:
            total += part
        return total

    def largest(self, x: Tensor) -> Tensor:
        """The largest value over the lanes of this stage, entry by entry."""
        return torch.stack(self.gather(x)).amax(0)

    def send(self, x: Tensor, ranks: Sequence[int]) -> None:
        x = x.contiguous()
        self._exchange([(rank, x) for rank in ranks], [])

    def receive(self, shape: Sequence[int], rank: int) -> Tensor:
        x = torch.empty(*shape)
        self._exchange([], [(rank, x)])
        return x

    def _exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        start = time.perf_counter()
        sends = [(rank, self._call(rank, self._dist.isend, x, rank)) for rank, x in sent]
        receipts = [(rank, self._call(rank, self._dist.irecv, x, rank)) for rank, x in received]
        for rank, work in (*receipts, *sends):
            self._call(rank, work.wait, timedelta(seconds=self.timeout_s))
        for _, x in sent:
            self.traffic.sent(x.nbytes)
        self.traffic.seconds += time.perf_counter() - start

    def _call(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), whose failure is that of the other rank"""
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise RankError(self._why(rank, str(error))) from error

    def _why(self, rank: int, error: str) -> str:
        """One line on the rank that is missing: its own last words if it left some."""
        words = self.last_words(rank)
        if words is None:
            time.sleep(GRACE_S)
            words = self.last_words(rank)
        if words is not None:
            return words
        is_late = "timed out" in error.lower() or "timeout" in error.lower()
        did = f"did not answer for {self.timeout_s:g} s" if is_late else "ended"
        return f"{self.name(rank)} {did}, {self.place} of rank {self.rank}; the run is over"

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self._hosts[rank][0]}"

    def last_words(self, rank: int) -> str | None:
        """The error that ended the rank, if it could leave one."""
        key = f"end/{rank}"
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError:  # the store's host is gone
            return None

    def leave(self, message: str) -> None:
        """Leave the message of this rank's error for the others."""
        has_name = message.startswith("rank ")
        try:
            self._store.set(f"end/{self.rank}", message if has_name else f"{self.name(self.rank)}: {message}")
        except RuntimeError:
            return

    def who_ended(self) -> str:
        """One line on the rank that made torchrun end this one."""
        others = [rank for rank in range(self.layout.num_ranks) if rank != self.rank]
        words = next((words for rank in others if (words := self.last_words(rank))), None)
        if words is not None:
            return words
        dead = [self.name(rank) for rank in others if not self._lives(rank)]
        return f"{', '.join(dead) or 'torchrun'} ended, {self.place} of rank {self.rank}; the run is over"

    def _lives(self, rank: int) -> bool:
        """Whether the rank runs, as far as this host can see."""
        host, pid = self._hosts[rank]
        if host != socket.gethostname():
            return True
        try:
            return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    def tell(self, topic: str, value: str) -> list[str]:
        """The values that all ranks give to one topic, in their order; not counted."""
        self._num_told += 1  # the same on all ranks, so that a topic may come again
        topic = f"{self._num_told}/{topic}"
        self._store.set(f"{topic}/{self.rank}", value)
        deadline = time.monotonic() + self.timeout_s
        return [self._told(f"{topic}/{rank}", rank, deadline) for rank in range(self.layout.num_ranks)]

    def _told(self, key: str, rank: int, deadline: float) -> str:
        """The value of the rank under this key. raises RankError if it ended first, or is late"""
        while time.monotonic() < deadline:
            try:
                if self._store.check([key]):
                    return self._store.get(key).decode()
            except RuntimeError as error:
                raise RankError(self._why(rank, str(error))) from error
            if self.last_words(rank) is not None:
                break
            time.sleep(POLL_S)
        raise RankError(self._why(rank, "timed out"))

    def close(self) -> None:
        self._dist.destroy_process_group()


_joined: list[Ranks] = []


def join_ranks(layout: RankLayout, timeout_s: float) -> Ranks:
    """The ranks of this process, joined at the first call. Only rank 0 keeps its stdout and stderr.

    raises   InputError for a process that torchrun did not start, and for another number of ranks than the layout's
    """
    check_world(layout)
    if not _joined:
        ranks = Ranks(layout, timeout_s)
        _joined.append(ranks)
        farewells.append(ranks.leave)
        if ranks.rank != 0 and not os.environ.get("QBENCH_DEBUG"):
            sys.stdout = sys.stderr = open(os.devnull, "w")
        signal.signal(signal.SIGTERM, _ended_by_torchrun)
    ranks = joined_ranks()
    ranks.divide(layout)
    return ranks


def joined_ranks() -> Ranks:
    """The ranks that `join_ranks` joined."""
    if not _joined:
        raise InputError("no ranks have joined; call join_ranks first")
    return _joined[0]


def close_joined() -> None:
    """Wait for the others and part, if this process joined ranks."""
    while _joined:
        ranks = _joined.pop()
        farewells.remove(ranks.leave)
        ranks.tell("done", "")
        ranks.close()


def _ended_by_torchrun(signum: int, frame: Any) -> None:
    raise RankError(joined_ranks().who_ended())
