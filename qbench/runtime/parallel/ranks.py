"""Ranks: processes that hold one model together, joined through torch.distributed and started by torchrun."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qbench.rank_layout import AUTO, GLOO, SHM, RankLayout, check_world, farewells
from qbench.runtime.parallel.links import GlooLink, Link, LinkError, SharedMemoryLink
from qbench.runtime.parallel.shared_memory import Offer, host_identity
from qbench.runtime.parallel.traffic import Traffic
from quant.errors import InputError

# After a time-out the ranks that wait for the same one end at about the same moment: so long for their words to come.
GRACE_S = 1.0
POLL_S = 0.02


class RankError(InputError):
    """Another rank ended or does not answer."""


class Host(NamedTuple):
    """The process of one rank, and the number of ranks that it expects. identity: as `host_identity`"""

    name: str
    pid: int
    identity: str | None
    num_ranks: int


def obstacle_of(error: RuntimeError) -> str:
    """One line on a meeting that failed, with its place."""
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return f"{place} is in use by another program; choose another port with --master-port of torchrun"
    return (
        f"no answer at {place} ({str(error).splitlines()[0][:200]}); check --master-addr and --master-port of torchrun"
    )


class Ranks:
    """This rank's connections to the others.

    Values travel as contiguous float32 from rank to rank, so that every byte is counted and a failure has a name.

    timeout_s  longest wait for another rank
    link       carries the values: one of qbench.rank_layout.LINKS; "auto": memory if all ranks share a host
    traffic    counts of this rank
    place      the part of the run that is under way, for messages
    raises     InputError for a link that these ranks cannot have
    """

    link: Link

    def __init__(self, layout: RankLayout, timeout_s: float, link: str = AUTO) -> None:
        import torch.distributed as dist  # slow, and of no use to one rank

        world = check_world(layout)
        self.rank, self.timeout_s = world.rank, timeout_s
        self.divide(layout)
        self.traffic = Traffic()
        self.place = "at the start"
        self._num_told = 0
        rendezvous = dist.rendezvous  # pyright: ignore[reportPrivateImportUsage]  documented under this name
        try:
            self._store, _, _ = next(iter(rendezvous("env://", timeout=timedelta(seconds=timeout_s))))
        except RuntimeError as error:
            raise InputError(f"rank {self.rank} cannot meet the others: {obstacle_of(error)}") from error
        here = Host(socket.gethostname(), os.getpid(), host_identity(), layout.num_ranks)
        self._store.set(f"host/{self.rank}", json.dumps(here))
        self._hosts = [self._host(rank) for rank in range(layout.num_ranks)]
        self.link = self._open_link(link)

    def _host(self, rank: int) -> "Host":
        """raises InputError for a rank that does not join, and for one that expects another number of ranks"""
        try:
            host = Host(*json.loads(self._store.get(f"host/{rank}")))
        except RuntimeError as error:
            raise InputError(
                f"rank {rank} did not join within {self.timeout_s:g} s; start the same number of ranks on all hosts"
            ) from error
        if host.num_ranks != self.layout.num_ranks:
            raise InputError(
                f"rank {rank} on {host.name} is one of {host.num_ranks} ranks, rank {self.rank} one of "
                f"{self.layout.num_ranks}; start the same number on all hosts"
            )
        return host

    def _open_link(self, wanted: str) -> Link:
        """The same kind on all ranks."""
        num_ranks = self.layout.num_ranks
        memory = None if wanted == GLOO else self._share_memory(wanted)
        if memory is None:
            return GlooLink(self._store, self.rank, num_ranks, self.timeout_s)
        return SharedMemoryLink(memory, num_ranks, self.rank, self.timeout_s, self._has_ended)

    def _share_memory(self, wanted: str) -> np.ndarray | None:
        """Memory that all ranks have mapped; None if they cannot, and "auto" is wanted."""
        hosts = {(host.name, host.identity) for host in self._hosts}
        if len(hosts) == 1 and self._hosts[0].identity is not None:
            memory, obstacle = self._map_memory()
        else:
            names = ", ".join(sorted({name for name, _ in hosts}))
            memory, obstacle = None, f"the ranks are on {names}, in more than one host, container or user"
        if obstacle and wanted == SHM:
            raise InputError(f"--link {SHM} needs memory that all ranks share: {obstacle}; use --link {GLOO}")
        return None if obstacle else memory

    def _map_memory(self) -> tuple[np.ndarray | None, str]:
        """Memory of rank 0, and the first obstacle of any rank, equal on all ranks; "" if all have mapped it."""
        num_ranks, memory, obstacle = self.layout.num_ranks, None, ""
        offered = Offer.make(num_ranks) if self.rank == 0 else Offer()
        taken = Offer.from_json(json.loads(self.tell("memory", json.dumps(offered.to_json()))[0]))
        try:
            memory = taken.map(self._hosts[0].pid, num_ranks)
        except OSError as error:
            obstacle = str(error)
        obstacle = next(filter(None, self.tell("mapped", obstacle)), "")
        offered.close()
        return memory, obstacle

    def divide(self, layout: RankLayout) -> None:
        """Take another layout of as many ranks, for the models that are loaded from now on."""
        self.layout, self.lane, self.stage = layout, layout.lane(self.rank), layout.stage(self.rank)

    def lanes(self) -> list[int]:
        """Ranks of this stage, in the order of their lanes."""
        return [self.layout.rank(self.stage, lane) for lane in range(self.layout.num_lanes)]

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

    def add(self, x: np.ndarray) -> None:
        """x becomes the sum over the lanes of this stage: float32, added in the order of the lanes.

        x  contiguous
        """
        lanes, start = self.lanes(), time.perf_counter()
        try:
            self.link.add(x, lanes, self.rank)
        except LinkError as error:
            raise RankError(self._why(error.rank, error.is_late)) from error
        for _ in lanes[1:]:
            self.traffic.sent(x.nbytes)
        self.traffic.seconds += time.perf_counter() - start

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
        try:
            self.link.exchange(sent, received)
        except LinkError as error:
            raise RankError(self._why(error.rank, error.is_late)) from error
        for _, x in sent:
            self.traffic.sent(x.nbytes)
        self.traffic.seconds += time.perf_counter() - start

    def _has_ended(self, rank: int) -> bool:
        return not self._lives(rank) or self.last_words(rank) is not None

    def _why(self, rank: int, is_late: bool) -> str:
        """One line on the rank that is missing: its own last words if it left some."""
        words = self.last_words(rank)
        if words is None:
            time.sleep(GRACE_S)
            words = self.last_words(rank)
        if words is not None:
            return words
        did = f"did not answer for {self.timeout_s:g} s" if is_late else "ended"
        return f"{self.name(rank)} {did}, {self.place} of rank {self.rank}; the run is over"

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self._hosts[rank].name}"

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
        host, pid, *_ = self._hosts[rank]
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
                raise RankError(self._why(rank, is_late=False)) from error
            if self.last_words(rank) is not None:
                break
            time.sleep(POLL_S)
        raise RankError(self._why(rank, is_late=True))

    def close(self) -> None:
        self.link.close()


_joined: list[Ranks] = []


def join_ranks(layout: RankLayout, timeout_s: float, link: str = AUTO) -> Ranks:
    """The ranks of this process, joined at the first call. Only rank 0 keeps its stdout and stderr.

    raises   InputError for a process that torchrun did not start, and for another number of ranks than the layout's
    """
    check_world(layout)
    if not _joined:
        ranks = Ranks(layout, timeout_s, link)
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
