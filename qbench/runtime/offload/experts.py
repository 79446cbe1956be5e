"""Experts that are read when a router chooses them, and the rules by which some stay in memory."""

import importlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.run.choices import DYNAMIC, EARLY, FREQUENCY, LATE, UNIFORM
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.layers.norm import Norm
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import Unit
from quant.models import MoeConfig

COUNTED_PASSES = 32  # forward passes whose choices "frequency" counts before it places


def by_rule(rule: str, counts: np.ndarray) -> list[tuple[int, int]]:
    """(layer, expert) of all experts, those to keep first.

    counts   [layers, experts] how often each was chosen
    source   KTransformers' rules for experts on the fast device: uniform, frequency, front-loading, dynamic
    """
    layers, experts = (axis.ravel() for axis in np.indices(counts.shape))
    keys = {
        UNIFORM: (layers, experts),  # sorted by the last key first
        FREQUENCY: (experts, layers, -counts.ravel()),
        EARLY: (experts, layers),
        LATE: (experts, -layers),
    }
    return [(int(layers[i]), int(experts[i])) for i in np.lexsort(keys[rule])]


class ExpertStore:
    """The experts of all layers in a bounded share of memory.

    rule          one of PLACEMENTS; "dynamic" keeps the experts used last, the others pin some and pass the rest
                  through the rest of the memory
    counts        [layers, experts] tokens that chose each
    pinned        units that the rule keeps
    hits, misses  experts that a call found in memory, and those that it read
    num_chosen    experts of a token
    decode_bytes, decode_passes   of experts that decode steps read, and their number
    """

    def __init__(self, streamer: Streamer, region: Region, units: Sequence[Unit], rule: str, config: MoeConfig) -> None:
        self._streamer, self._rule = streamer, rule
        self.num_chosen = config.num_experts_per_token
        self._names = {(unit.layer, unit.expert): unit.name for unit in units}
        self._read_sizes = {unit.name: unit.size_bytes for unit in units}
        self._sizes = {unit.name: region.held_bytes(unit.name) for unit in units}
        self._capacity = 0
        self.pinned: frozenset[str] = frozenset()
        self._used: OrderedDict[str, None] = OrderedDict()  # in memory, the one that was used last at the end
        self._passes = 0
        self.counts = np.zeros((1 + max(unit.layer or 0 for unit in units), config.num_experts), np.int64)
        self.hits = self.misses = 0
        self._is_decode = False
        self.decode_bytes = self.decode_passes = 0

    @property
    def total_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def resident(self) -> frozenset[str]:
        return frozenset(self._used)

    def resize(self, capacity: int) -> None:
        """Keep experts within this many bytes from now on."""
        self._capacity = capacity
        self._place()
        self._make_room(0, frozenset())

    def begin(self, *, is_decode: bool) -> None:
        """A forward pass begins. is_decode: of one token per sequence"""
        self._passes += 1
        self._is_decode = is_decode
        self.decode_passes += is_decode
        if self._rule == FREQUENCY and self._passes == COUNTED_PASSES:
            self._place()

    def groups(self, layer: int, chosen: np.ndarray) -> list[list[int]]:
        """The experts of a call in ascending order, cut where memory for them ends.

        chosen   [M, k] experts of each token
        """
        counts = np.bincount(chosen.ravel(), minlength=self.counts.shape[1])
        self.counts[layer] += counts
        room = self._capacity - self._bytes(self.pinned)
        groups: list[list[int]] = [[]]
        taken = 0
        for expert in np.flatnonzero(counts).tolist():
            name = self._names[layer, expert]
            size = 0 if name in self.pinned else self._sizes[name]
            if taken + size > room and groups[-1]:
                groups.append([])
                taken = 0
            groups[-1].append(expert)
            taken += size
        return groups

    def need(self, layer: int, experts: Sequence[int]) -> None:
        """Wait until these are in memory, all read at once; those that were used least recently give way."""
        names = [self._names[layer, expert] for expert in experts]
        missing = [name for name in names if name not in self._used]
        self.hits, self.misses = self.hits + len(names) - len(missing), self.misses + len(missing)
        if self._is_decode:
            self.decode_bytes += sum(self._read_sizes[name] for name in missing)
        for name in names:
            if name in self._used:
                self._used.move_to_end(name)
        self._make_room(self._bytes(missing), frozenset(names))
        self._streamer.bring(missing)
        for name in names:
            self._streamer.need(name)
            self._used[name] = None

    def _bytes(self, names: Sequence[str] | frozenset[str]) -> int:
        return sum(self._sizes[name] for name in names)

    def _place(self) -> None:
        """Pin by the rule as many as leave room for one call's largest expert."""
        pinned: set[str] = set()
        if self._rule != DYNAMIC and (self._rule != FREQUENCY or self._passes >= COUNTED_PASSES):
            room = self._capacity - 2 * max(self._sizes.values())
            for place in by_rule(self._rule, self.counts):
                if place in self._names and (room := room - self._sizes[self._names[place]]) >= 0:
                    pinned.add(self._names[place])
        self.pinned = frozenset(pinned)

    def _make_room(self, num_bytes: int, wanted: frozenset[str]) -> None:
        """Drop experts until so many bytes are free; pinned ones that are not there yet have their room."""
        to_come = self.pinned - self._used.keys() - wanted
        over = self._bytes(frozenset(self._used)) + self._bytes(to_come) + num_bytes - self._capacity
        gone = []
        for name in list(self._used):
            if over <= 0:
                break
            if name not in wanted and name not in self.pinned:
                gone.append(name)
                over -= self._sizes[name]
                del self._used[name]
        self._streamer.drop(gone)


class StreamedExperts(ExpertFeedForward):
    """Routed experts of a layer that are read once the router has chosen; the bits are those of experts in memory."""

    def __init__(self, made: ExpertFeedForward, layer: int, store: ExpertStore) -> None:
        """made: the same experts, over weights in a region"""
        super().__init__(made.parts)
        self._layer, self._store = layer, store

    @property
    def step(self) -> Callable[..., Tensor] | None:
        return self._routed if self.is_packed else None

    def _routed(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> Tensor:
        rows = (x if norm is None else norm(x)).flatten(0, -2).contiguous()  # [M, K]
        y = torch.cat([self._some(part) for part in rows.split(tokens_per_call())]).view_as(x)
        return y if residual is None else y.add_(residual)

    def _some(self, rows: Tensor) -> Tensor:
        """The output for as many tokens as one call of cpu_kernels takes at a time: [M, K] -> [M, K]"""
        chosen, weights = (choice.numpy() for choice in self.choose(rows))
        y, begin = np.empty(rows.shape, np.float32), 0
        groups = self._store.groups(self._layer, chosen)
        for number, group in enumerate(groups):
            self._store.need(self._layer, group)
            end = None if number + 1 == len(groups) else group[-1] + 1
            self.packed.forward(rows.numpy(), chosen, weights, out=y, begin=begin, end=end)
            begin = end
        return torch.from_numpy(y)

    def _one_by_one(self, rows: Tensor) -> Tensor:
        y = torch.zeros_like(rows)
        for expert, tokens, weights in self.routes(rows):
            self._store.need(self._layer, [expert])
            y.index_add_(0, tokens, self.experts[expert](rows[tokens]) * weights[:, None])
        if self.shared is not None:
            y += self.shared(rows)
        return y


def tokens_per_call() -> int:
    """Tokens that cpu_kernels route at a time."""
    return importlib.import_module("cpu_kernels").EXPERT_TOKENS
