"""RankBuilder: layers from the parts of a model that one rank holds."""

from dataclasses import replace

from torch import Tensor

from qbench.run.rank_layout import ALL_TO_ALL, GATHER
from qbench.runtime.checkpoint import HEAD
from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.moe import ExpertFeedForward, ExpertParts
from qbench.runtime.parallel.experts import DispatchedExperts, LaneExperts
from qbench.runtime.parallel.linears import GatheredLinears, HeadLinears, LaneLinears, SummedLinears
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.shard import COLUMNS, LAYER, Shard
from qbench.runtime.parallel.traffic import Exchanges
from quant.models import ModelConfig, MoeConfig
from quant.qtensor import QTensor
from quant.source import Source


class RankBuilder(BlockBuilder):
    """Builds layers from this rank's parts; projections and experts that end in the residual exchange values."""

    def __init__(self, config: ModelConfig, source: Source, shard: Shard, ranks: Ranks, impl: str) -> None:
        super().__init__(config, self._read, impl)
        self.source, self.shard, self.ranks = source, shard, ranks
        self.exchanges = Exchanges()

    def _read(self, local: str) -> QTensor:
        return self.shard.part(local, self.source.read(self.shard.name(local)))

    def linears(self, *names: str) -> FusedLinears:
        match = LAYER.match(f"{names[0]}.weight")
        if self.shard.layout.tp == 1 or match is None or match[2] not in COLUMNS:
            return super().linears(*names)
        return self._lane_linears(names[0], match[2])

    def head(self, name: str) -> FusedLinears:
        """The rows of the vocabulary that this lane computes. name: the tensor that holds the head's weight"""
        if self.shard.layout.tp == 1:
            return self.linears(name)
        part = self.shard.head_part(self.read(f"{name}.weight"))
        linears = HeadLinears(part, self.impl, self.ranks, self.shard.head_widths)
        self.exchanges = self.exchanges.and_wanted(linears.exchanges)
        self.impls |= dict(zip([HEAD], linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears

    def routed(self, parts: ExpertParts) -> ExpertFeedForward:
        if self.shard.layout.ep == 1:
            return super().routed(parts)
        width, first = self.config.hidden_size, self.shard.experts.start
        if self.shard.layout.dispatch == ALL_TO_ALL:
            self.exchanges = replace(self.exchanges, of_away=(width + 2 * parts.config.num_experts_per_token, width))
            return DispatchedExperts(parts, first, self.ranks)
        self.exchanges = self.exchanges.and_tokens([width])
        return LaneExperts(parts, first, self.ranks)

    def own_experts(self, moe: MoeConfig) -> range:
        return self.shard.experts

    def _lane_linears(self, name: str, module: str) -> LaneLinears:
        bias: Tensor | None = self.vector(f"{name}.bias") if self._has(f"{name}.bias") else None
        weight = self.read(f"{name}.weight")
        if self.shard.layout.cut == GATHER:
            linears = GatheredLinears(weight, bias, self.impl, self.ranks, self.shard.widths(module))
        else:
            linears = SummedLinears(weight, bias, self.impl, self.ranks)
        self.exchanges = self.exchanges.and_tokens(linears.exchanges)
        self.impls |= dict(zip([name], linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears
