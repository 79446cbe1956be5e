"""Sizes of a model at a context and a batch, and the costs that the solver gets of them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from qbench.plan.offload.costs import Costs, Experts, Kind, Placed, expert_bytes
from qbench.plan.offload.pipeline import Stage
from qbench.plan.offload.tiers import Tiers, seconds_of
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload.placement import AHEAD_BYTES, place, split_experts
from qbench.runtime.offload.region import Region, held_size
from qbench.runtime.offload.units import HEAD_UNIT, PlacedLinear, Unit
from quant.models import EMBEDDING, ModelConfig
from quant.present import present
from quant.source import Source

PASS_TOKENS = 256  # of a prefill at once: their products take about as long as a read of the weights


@dataclass(frozen=True)
class Sizes:
    """Bytes of a model for sequences that pass through the layers together.

    kv_bytes     of all keys and values at the full context
    fixed_bytes  of weights and activations that always stay in memory
    chunk        tokens of a prompt per sequence that pass at once, for which there are activations
    """

    config: ModelConfig
    units: tuple[Unit, ...]
    kv_bytes: float
    fixed_bytes: float
    context: int
    together: int
    chunk: int

    @classmethod
    def of(cls, source: Source, predictor: MemoryPredictor, units: list[Unit], context: int, together: int) -> "Sizes":
        config = predictor.config
        packed = sum(linear.size_bytes for unit in units for linear in unit.linears)
        table = 0 if config.tie_word_embeddings else source.tensors[EMBEDDING].size_bytes  # rows are read from the file
        kept = predictor.resident_bytes - packed - table
        chunk = max(1, min(context, PASS_TOKENS // together))
        fixed = max(0, kept) + predictor.workspace_bytes(chunk, together)
        return cls(config, tuple(units), predictor.cache.size_bytes(context, together), fixed, context, together, chunk)

    @property
    def linears(self) -> list[PlacedLinear]:
        return [linear for unit in self.units for linear in unit.linears]

    @cached_property
    def _always_and_experts(self) -> tuple[list[Unit], list[Unit]]:
        return split_experts(self.units)

    def costs(self, tiers: Tiers, memory_bytes: float, *, kv_spills: bool = False) -> Costs:
        """memory_bytes: for all that is placed; kv_spills: whether keys and values may be on the disk"""
        kv = self._kv(tiers)
        if not kv_spills:
            kv = replace(kv, held_bytes=0.0)
            memory_bytes -= self.kv_bytes
        return Costs(
            kinds=(*self._weights(tiers), kv),
            memory_bytes=memory_bytes,
            ahead_bytes=AHEAD_BYTES,
            disk=tiers.disk,
            experts=self._experts(),
        )

    def stages(self, tiers: Tiers, costs: Costs, placed: Placed) -> tuple[list[Stage], float]:
        """Layers and head of a step, placed as the runtime places them, and the bytes of the ring."""
        always, experts = self._always_and_experts
        *_, (kv, num_kv) = zip(costs.kinds, placed.counts, strict=True)
        weights_bytes = costs.memory_bytes - kv.held_bytes * num_kv
        num_chosen = present(self.config.moe).num_experts_per_token if experts else 1
        found = place(self.units, Region(list(self.units)), int(weights_bytes), num_chosen)
        streamed = set(found.streamed)
        seconds, rest = self._seconds(tiers), self._rest(tiers)

        def stage(unit: Unit | None, compute_s: float, blocked_s: float) -> Stage:
            if unit is None or unit.name not in streamed:
                return Stage(0, 0, compute_s, blocked_s)
            return Stage(unit.size_bytes, held_size(unit), compute_s, blocked_s)

        of_layer = {unit.layer: unit for unit in always}
        routing = {unit.layer for unit in experts}
        share = found.expert_bytes / sum(map(held_size, experts)) if experts else 1.0
        routed_s = expert_bytes(costs, replace(placed, expert_share=share)) / costs.disk.bytes_s
        spilled_s = kv.read_bytes * (kv.count - num_kv) / kv.count / costs.disk.bytes_s
        stages = []
        for layer in range(self.config.num_layers):
            unit = of_layer.get(layer)
            routed = routed_s / len(routing) + costs.disk.latency_s if layer in routing and share < 1 else 0.0
            stages.append(stage(unit, seconds(unit) if unit else rest(layer), routed + spilled_s))
        head = of_layer[None]
        return [*stages, stage(head, seconds(head), 0.0)], found.ring_bytes

    def _seconds(self, tiers: Tiers) -> Callable[[Unit], float]:
        """Seconds of computation with a unit: its products, and the rest of its layer or of the step."""
        rest = self._rest(tiers)
        return lambda unit: max(0.0, seconds_of(unit, tiers.product_s) + rest(unit.layer))

    def _rest(self, tiers: Tiers) -> Callable[[int | None], float]:
        """Seconds of a layer beyond its products; None: of the step."""
        first, overheads = num_unusual(self.config), tiers.overheads

        def rest(layer: int | None) -> float:
            if layer is None:
                return overheads.other_s
            return 0.0 if layer < first else overheads.layer_s

        return rest

    def _weights(self, tiers: Tiers) -> list[Kind]:
        """Equal units that every step reads are one kind."""
        always, _ = self._always_and_experts
        seconds = self._seconds(tiers)
        kinds = Counter((held_size(unit), unit.size_bytes, seconds(unit), unit.name == HEAD_UNIT) for unit in always)
        return [
            Kind("head" if is_head else "layer", count, held, read, compute)
            for (held, read, compute, is_head), count in kinds.items()
        ]

    def _kv(self, tiers: Tiers) -> Kind:
        """Keys and values, a layer's at a time; attention to them is in the rest of a layer."""
        layers = self.config.num_layers
        per_layer = self.kv_bytes / layers
        waiting = tiers.disk.latency_s * tiers.disk.bytes_s  # bytes that the disk would read while it begins
        return Kind("keys and values", layers, per_layer, per_layer + waiting, 0.0, needs_ring=False)

    def _experts(self) -> Experts | None:
        _, experts = self._always_and_experts
        if not experts:
            return None
        held = sorted(held_size(unit) for unit in experts)
        read = self._routed_share * sum(unit.size_bytes for unit in experts)
        return Experts(sum(held), sum(held[-present(self.config.moe).num_experts_per_token :]), read)

    @property
    def _routed_share(self) -> float:
        """Expected share of the experts that a step uses, if each token chooses at random."""
        moe = self.config.moe
        return 0.0 if moe is None else 1 - (1 - moe.num_experts_per_token / moe.num_experts) ** self.together


def num_unusual(config: ModelConfig) -> int:
    """First layers of another kind than the last: dense ones before those with experts"""
    kinds = [config.layer_kind(layer) for layer in range(config.num_layers)]
    return kinds.index(kinds[-1])
