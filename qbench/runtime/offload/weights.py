"""StreamedWeights: brings the weights of each layer before it runs, and gives up those of the layer before it."""

from dataclasses import dataclass
from functools import partial

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.offload.budget import MARGIN_BYTES, Budget
from qbench.runtime.offload.builder import StreamedHead
from qbench.runtime.offload.experts import ExpertStore
from qbench.runtime.offload.placement import Placement, least_bytes, place
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import HEAD_UNIT, Unit
from quant.errors import InputError
from quant.present import present


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes of the limit, of the weights that stay, of the ring for the others, and of the experts in memory.

    streamed_bytes   that each forward pass reads, without experts
    """

    limit_bytes: int
    pinned_bytes: int
    ring_bytes: int
    expert_bytes: int
    streamed_bytes: int


class StreamedWeights:
    """Says before each layer that its unit is needed and that the one before it is done with.

    experts     the routed ones, which are read if a router chooses them; None: a model without experts
    most_bytes  that weights get even if more is free; None: all that is free
    """

    def __init__(
        self, streamer: Streamer, region: Region, units: list[Unit], budget: Budget, experts: ExpertStore | None
    ) -> None:
        self.streamer, self.region, self.units, self.budget = streamer, region, units, budget
        self.experts = experts
        self.placement: Placement | None = None
        self.placement_bytes = 0
        self.most_bytes: int | None = None
        self._least_bytes = least_bytes(units)
        self._names = {unit.name for unit in units}
        self._streamed: frozenset[str] = frozenset()
        self._entered: str | None = None

    def head(self, linears: FusedLinears) -> StreamedHead:
        return StreamedHead(linears, partial(self.enter, HEAD_UNIT))

    def begin(self, cache: Cache, step: Step) -> None:
        """Place the units again if there is less memory for weights than before, or much more."""
        self.leave()
        free = self._free(cache, step)
        if self._must_place(free):
            with self.streamer.at_rest():  # reads in flight make the first look wrong by tens of MiB
                free = self._free(cache, step)
            if free < self._least_bytes - (MARGIN_BYTES // 2 if self.placement else 0):
                raise InputError(self.budget.too_small(self._least_bytes - free))
            if self._must_place(free):
                self._place(self._given(free))
        if self.experts is not None:
            self.experts.begin(is_decode=step.tokens.numel() == cache.batch)

    def _free(self, cache: Cache, step: Step) -> int:
        return self.budget.weight_bytes(cache, step, self.streamer.resident_bytes)

    def _given(self, free: int) -> int:
        """Bytes for the weights if so many are free."""
        return max(free if self.most_bytes is None else min(free, self.most_bytes), self._least_bytes)

    def _must_place(self, free: int) -> bool:
        """Also if less is free than weights need."""
        given = min(free, self._given(free))
        return self.placement is None or self.budget.must_place(self.placement_bytes, given)

    def _place(self, free: int) -> None:
        num_chosen = 1 if self.experts is None else self.experts.num_chosen
        placed = self.placement = place(self.units, self.region, free, num_chosen)
        self._streamed, self.placement_bytes = frozenset(placed.streamed), free
        stays = placed.pinned
        if self.experts is not None:
            self.experts.resize(placed.expert_bytes)
            stays |= self.experts.resident
        self.streamer.stream(placed.streamed, placed.ring_bytes, stays)

    @property
    def shares(self) -> Shares:
        """Those of the placement in force."""
        placed, held = present(self.placement), self.region.held_bytes
        stored = {unit.name: unit.size_bytes for unit in self.units}
        return Shares(
            limit_bytes=self.budget.limit_bytes,
            pinned_bytes=sum(held(name) for name in placed.pinned),
            ring_bytes=placed.ring_bytes,
            expert_bytes=placed.expert_bytes,
            streamed_bytes=sum(stored[name] for name in placed.streamed),
        )

    def disk_bandwidth(self, most_bytes: int) -> float:
        """Bytes per second that the disk gives when only it is at work, for units that forward passes read."""
        experts = [unit.name for unit in self.units if unit.expert is not None]
        return self.streamer.bandwidth(present(self.placement).streamed or experts, most_bytes)

    @property
    def reads_experts(self) -> bool:
        """Whether some experts are not in memory."""
        return self.experts is not None and self.experts.total_bytes > self.shares.expert_bytes

    @property
    def expert_bytes_per_step(self) -> float:
        """Mean bytes of experts that a decode step has read; 0 before the first."""
        experts = self.experts
        return experts.decode_bytes / experts.decode_passes if experts and experts.decode_passes else 0.0

    def enter(self, unit: str) -> None:
        if unit == self._entered:  # the head, once per piece of logits
            return
        self.leave()
        if unit in self._names:
            self.streamer.need(unit)
            self._entered = unit

    def leave(self) -> None:
        if self._entered in self._streamed:
            self.streamer.done(self._entered)
        self._entered = None
