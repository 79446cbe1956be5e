"""A benchmark: a kernel at the shape of a real model, and other libraries that do the same."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from qbench.kernels.case import Deviation
from quant.json_data import JsonData

OURS = "qbench"


class Absent(Exception):
    """Why a contender cannot take part: its package is missing, or it has no such kernel."""


class Contender(Protocol):
    how: str  # which code of it runs, as far as it reports that

    def run(self) -> float | None:
        """Every call of the benchmark, one after the other. Its seconds, where another process ran and timed them."""
        ...

    def output(self) -> np.ndarray:
        """The output of the last call of a run."""
        ...


@dataclass(frozen=True, slots=True)
class KernelSizes(JsonData):
    """The fields of a `Benchmark` that its row has."""

    op: str
    shape: str
    tokens: int | None
    calls: int
    moved_bytes: int
    operations: int | None
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One kernel on inputs of one shape.

    op           the name of its table of implementations
    shape        as people read it: "2048x8192" (N x K)
    tokens       M; None if a weight is the only input
    contenders   name -> function that makes it; raises Absent. OURS is among them
    calls        equal calls in a run: as many different weights as do not fit into the caches
    moved_bytes  of one call, from memory: the weight as packed, inputs and outputs once
    operations   of one call; a multiply and an add are two. None: a search, whose operations are not counted
    arithmetic   the operands, which decide on the unit that the operations are compared with: `qbench.speed.units`
    check        output -> how far from the truth
    own_checks   the same for contenders that round weights otherwise
    """

    op: str
    shape: str
    tokens: int | None
    contenders: Mapping[str, Callable[[], Contender]]
    calls: int
    moved_bytes: int
    operations: int | None
    arithmetic: str
    check: Callable[[np.ndarray], Deviation]
    own_checks: Mapping[str, Callable[[np.ndarray], Deviation]] = field(default_factory=dict)

    @property
    def sizes(self) -> KernelSizes:
        work = self.calls, self.moved_bytes, self.operations, self.arithmetic
        return KernelSizes(self.op, self.shape, self.tokens, *work)

    @property
    def label(self) -> str:
        return f"{self.op} {self.shape}" + ("" if self.tokens is None else f" M={self.tokens}")

    def is_cold(self, cache_bytes: int) -> bool:
        """Whether a run moves more than a cache of so many bytes keeps for the next one."""
        return self.calls * self.moved_bytes > cache_bytes
