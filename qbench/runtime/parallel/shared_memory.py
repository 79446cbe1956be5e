"""Memory that the ranks of one host share. It has no name, so nothing is left of it, however the ranks end."""

import importlib
import mmap
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from torch import Tensor

from cpu_kernels import LINK_CHANNEL_BYTES
from qbench.run.rank_layout import SHM
from qbench.runtime.parallel.link import Link, LinkError
from quant.json_data import JsonData

NONCE_BYTES = 16
HEADER_BYTES = 4096  # a page; the channels begin at the next one
RING_BYTES = 1 << 18  # a quarter of a second-level cache, so that a receiver reads from a cache
LOOK_S = 0.1  # between two looks at whether a late rank still runs: a file and a question to rank 0


def host_identity() -> str | None:
    """Equal for two processes only if one can open the other's memory; None if this system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return None


def size_bytes(num_ranks: int) -> int:
    return HEADER_BYTES + num_ranks**2 * (LINK_CHANNEL_BYTES + RING_BYTES)


@dataclass(frozen=True, slots=True)
class Offer(JsonData):
    """Memory that one process offers to others of its host.

    descriptor  in the process that offers it; None: it could not
    nonce       in the header of the memory
    obstacle    reason for its absence
    """

    descriptor: int | None = None
    nonce: str = ""
    obstacle: str = ""

    @classmethod
    def make(cls, num_ranks: int) -> Self:
        """Memory of channels between so many ranks, of zeros."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            descriptor = os.memfd_create("qbench-ranks")
            os.truncate(descriptor, size_bytes(num_ranks))
            os.pwrite(descriptor, nonce, 0)
        except OSError as error:
            return cls(obstacle=str(error))
        return cls(descriptor, nonce.hex())

    def map(self, pid: int, num_ranks: int) -> np.ndarray:
        """The channels, uint8 [bytes], that process `pid` offers. raises OSError with the reason for their absence"""
        if self.descriptor is None:
            raise OSError(self.obstacle)
        path = f"/proc/{pid}/fd/{self.descriptor}"
        descriptor = os.open(path, os.O_RDWR)
        try:
            mapped = mmap.mmap(descriptor, size_bytes(num_ranks))
        except ValueError as error:
            raise OSError(f"{path} is no memory of {num_ranks} ranks") from error
        finally:
            os.close(descriptor)
        if mapped[:NONCE_BYTES].hex() != self.nonce:
            raise OSError(f"{path} belongs to another run")
        return np.frombuffer(mapped, np.uint8, offset=HEADER_BYTES)

    def close(self) -> None:
        """Withdraw the offer; those who have mapped the memory keep it."""
        if self.descriptor is not None:
            os.close(self.descriptor)


class SharedMemoryLink(Link):
    """Rings in memory that all ranks of a host have mapped; waiting ranks spin, then yield, then nap.

    The memory has no name, so it goes with the last process that maps it.

    memory     uint8, as cpu_kernels.SharedLink wants it
    has_ended  whether a rank has ended, which memory does not show
    """

    name = SHM

    def __init__(
        self, memory: np.ndarray, num_ranks: int, rank: int, timeout_s: float, has_ended: Callable[[int], bool]
    ) -> None:
        self._end = importlib.import_module("cpu_kernels").SharedLink(memory, num_ranks, rank)
        self._timeout_s, self._has_ended = timeout_s, has_ended
        self._look_s = min(LOOK_S, timeout_s)

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        self._end.begin([(rank, x.numpy()) for rank, x in sent], [(rank, x.numpy()) for rank, x in received])
        self._move()

    def add(self, x: np.ndarray, ranks: Sequence[int], rank: int) -> None:
        self._end.begin_sum(ranks, x)
        self._move()

    def _move(self) -> None:
        late = self._end.move(self._look_s)
        deadline = time.monotonic() + self._timeout_s - self._look_s
        while late >= 0:
            if self._has_ended(late):
                raise LinkError(late, is_late=False)
            if time.monotonic() >= deadline:
                raise LinkError(late, is_late=True)
            late = self._end.move(self._look_s)
