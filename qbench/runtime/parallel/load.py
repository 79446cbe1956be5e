"""From a source to the part of the model that this rank holds."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from qbench.rank_layout import GATHER
from qbench.run_options import RunOptions
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.latent_choice import chosen_latents
from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.parallel.experts import LaneExperts
from qbench.runtime.parallel.linears import GatheredLinears, HeadLinears, LaneLinears, SummedLinears
from qbench.runtime.parallel.model import RankModel
from qbench.runtime.parallel.ranks import Ranks, joined_ranks
from qbench.runtime.parallel.shard import COLUMNS, LAYER, Shard, make_shard
from qbench.runtime.parallel.traffic import Exchanges
from qbench.runtime.token_kinds import token_kinds
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig, MoeConfig
from quant.qtensor import QTensor
from quant.source import Source


def load_ranked(source: Source, options: RunOptions, impl: str, path: str, ranks: Ranks | None = None) -> RankModel:
    """This rank's part of the source's model; a call gives the same logits on all ranks.

    The embedding is whole on every rank, and so is the head of a stage that has one lane.

    ranks    None: those that have joined
    raises   InputError as `load_model` and `make_shard`
    """
    ranks = joined_ranks() if ranks is None else ranks
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    shard = make_shard(source, config, options.layout, ranks.rank)
    kv = _kv_scheme(source, config, options)
    local = shard.config(config)
    builder = RankBuilder(local, source, shard, ranks, impl)
    kinds = partial(token_kinds, source.tokenizer)
    caches = CacheMaker(local, kv, impl, options.cache_spec, kinds, options.attention)
    if config.tie_word_embeddings and options.layout.tp == 1:
        table, head = builder.tied_table(EMBEDDING, HEAD)
    else:
        table = builder.stored_table(EMBEDDING)
        head = builder.head(EMBEDDING if config.tie_word_embeddings else HEAD)
    embedding = builder.embedding(table)
    blocks = [builder.block(layer) for layer in range(local.num_layers)]
    exchanges = builder.exchanges
    if shard.is_last_stage:
        exchanges = _of_wanted_tokens(blocks[-1], exchanges)
    norm = builder.norm(FINAL_NORM)
    caches.expand = [block.attention.expanded for block in blocks] if config.mla else []
    model = RankModel(local, embedding, blocks, norm, head, caches, path)
    model.impls, model.weight_bytes = builder.impls, builder.weight_bytes
    model.ranks, model.shard, model.exchanges = ranks, shard, exchanges
    if chosen_latents(local, kv)[1] is not None:
        model.weight_bytes += sum(block.attention.pack() for block in blocks)
    ranks.traffic.restart()
    return model


def _of_wanted_tokens(last: Block, exchanges: Exchanges) -> Exchanges:
    """The exchanges if the model's last net computes the wanted tokens alone, as it does on one rank."""
    net = last.feed_forward
    if not isinstance(net, KernelFeedForward) or not isinstance(net.down, LaneLinears):
        return exchanges
    group = net.gate_up.group
    if group is None or group.shares or not net.down.is_tokenwise:
        return exchanges
    last.is_tokenwise = True
    return exchanges.moved(len(net.down.exchanges))


def _kv_scheme(source: Source, config: ModelConfig, options: RunOptions) -> KVScheme | None:
    kv = KVScheme.of(source.config, config, source.spec)
    if kv is not None and kv.k_scale is not None:
        raise InputError(
            f"KV format {kv.format.name} has calibrated scales, which {options.layout} does not cut yet; "
            "use a format without -cal"
        )
    return kv


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

    def routed(
        self,
        moe: MoeConfig,
        router: FusedLinears,
        nets: Sequence[FeedForward],
        shared: FeedForward | None,
        choice_bias: Tensor | None,
    ) -> ExpertFeedForward:
        if self.shard.layout.ep == 1:
            return super().routed(moe, router, nets, shared, choice_bias)
        self.exchanges = self.exchanges.and_tokens([self.config.hidden_size])
        first = self.shard.experts.start
        return LaneExperts(moe, router, nets, shared, choice_bias, first=first, ranks=self.ranks)

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
