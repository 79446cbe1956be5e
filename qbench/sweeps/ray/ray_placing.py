"""Nodes that a case fits on: its demand, a node's resources, and the cases that run there."""

from dataclasses import dataclass, field
from functools import cache

from qbench.measure.host.machine import available_cores
from qbench.measure.records.record import Origin
from qbench.run.case import Case
from qbench.run.choices import CUDA
from qbench.sources import open_source
from quant.sizes import size_summary

FLOAT_BYTES = 4
PROCESS_BYTES = 2**30  # Python, torch and its libraries take a third of it; the rest is for activations


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a case on a node: the whole node if speed is measured."""

    cpus: int
    gpus: int
    memory: int
    whole: bool

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPU" if self.gpus else ""
        return f"{self.cpus} CPU{gpus} and {self.memory / 2**30:.1f} GiB"


@dataclass(slots=True)
class Node:
    """A node of the cluster.

    name     Ray's id
    memory   bytes
    origin   of the rows that it measures
    slots    running cases, each under a number of its own
    """

    name: str
    address: str
    cpus: float
    gpus: float
    memory: float
    origin: Origin
    slots: dict[int, Demand] = field(default_factory=dict)

    @property
    def room(self) -> str:
        return str(Demand(int(self.cpus), int(self.gpus), int(self.memory), whole=False))

    @property
    def has_room(self) -> bool:
        """Whether a small case would fit."""
        return self.fits(Demand(1, 0, 0, whole=False))

    def can_hold(self, demand: Demand) -> bool:
        """Whether it fits on the node if nothing else runs."""
        return demand.cpus <= self.cpus and demand.gpus <= self.gpus and demand.memory <= self.memory

    def fits(self, demand: Demand) -> bool:
        """Whether it fits next to the cases that run there now."""
        others = list(self.slots.values())
        if others and (demand.whole or any(one.whole for one in others)):
            return False
        return self.can_hold(
            Demand(
                cpus=demand.cpus + sum(one.cpus for one in others),
                gpus=demand.gpus + sum(one.gpus for one in others),
                memory=demand.memory + sum(one.memory for one in others),
                whole=demand.whole,
            )
        )

    def take_slot(self, demand: Demand) -> int:
        """The lowest number that is free, now taken."""
        slot = next(number for number in range(len(self.slots) + 1) if number not in self.slots)
        self.slots[slot] = demand
        return slot


@dataclass(frozen=True, slots=True)
class Waiting:
    """A case that has no node now. lost: names of the nodes that it was lost with"""

    number: int
    case: Case
    demand: Demand
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """A case on a node, in a slot that it took there."""

    waited: Waiting
    node: Node
    slot: int


def demand_of(case: Case) -> Demand:
    """Its threads, its GPU, and room for the unquantized model in float32: the most that is held at a time."""
    memory = PROCESS_BYTES + FLOAT_BYTES * _num_weights(case.model)
    return Demand(case.threads or available_cores(), int(case.device == CUDA), memory, whole=case.speed is not None)


@cache
def _num_weights(model: str) -> int:
    return size_summary(open_source(model).tensors).num_weights
