"""From a source to the part of the model that this rank holds."""

from functools import partial

from qbench.run.options import RunOptions
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.plan import CacheNeeds
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.feed_forward import KernelFeedForward
from qbench.runtime.load import rank_loaders
from qbench.runtime.parallel.builder import RankBuilder
from qbench.runtime.parallel.joined import joined_ranks
from qbench.runtime.parallel.linears import LaneLinears
from qbench.runtime.parallel.make_shard import make_shard
from qbench.runtime.parallel.model import RankModel
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.share_maker import ShareMaker
from qbench.runtime.parallel.traffic import Exchanges
from qbench.runtime.token_kinds import token_kinds
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
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
    if config.online:
        raise InputError(f"{source.spec} rotates {' and '.join(sorted(config.online))} while it runs; use one rank")
    shard = make_shard(source, config, options.layout, ranks.rank)
    kv = _kv_scheme(source, config, options)
    local = shard.config(config)
    builder = RankBuilder(local, source, shard, ranks, impl)
    caches = _caches(local, kv, impl, options, source, ranks)
    if config.tie_word_embeddings and options.layout.tp == 1:
        table, head = builder.tied_table(EMBEDDING, HEAD)
    else:
        table = builder.stored_table(EMBEDDING)
        head = builder.head(EMBEDDING if config.tie_word_embeddings else HEAD)
    embedding = builder.embedding(table)
    blocks = [builder.block(layer) for layer in range(local.num_layers)]
    exchanges = builder.exchanges
    if options.layout.sp > 1:  # out and lse of each head
        exchanges = exchanges.and_tokens([local.num_heads * (local.value_dim + 1)] * local.num_layers)
    if shard.is_last_stage:
        exchanges = _of_wanted_tokens(blocks[-1], exchanges)
    norm = builder.norm(FINAL_NORM)
    caches.needs.expand = [block.attention.expanded for block in blocks] if config.mla else []
    model = RankModel(local, embedding, blocks, norm, head, caches, path)
    model.impls, model.weight_bytes = builder.impls, builder.weight_bytes
    model.ranks, model.shard, model.exchanges = ranks, shard, exchanges
    if chosen_latents(local, kv)[1] is not None:
        model.weight_bytes += sum(block.attention.pack() for block in blocks)
    ranks.traffic.restart()
    return model


rank_loaders.append(load_ranked)


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


def _caches(
    config: ModelConfig, kv: KVScheme | None, impl: str, options: RunOptions, source: Source, ranks: Ranks
) -> CacheMaker:
    needs = CacheNeeds(partial(token_kinds, source.tokenizer))
    about = (config, kv, impl, options.cache_spec, options.attention, needs)
    return CacheMaker(*about) if options.layout.sp == 1 else ShareMaker(*about, ranks=ranks)


def _kv_scheme(source: Source, config: ModelConfig, options: RunOptions) -> KVScheme | None:
    kv = KVScheme.of(source.config, config, source.spec)
    if kv is not None and kv.k_scale is not None and options.layout.sp == 1:
        raise InputError(
            f"KV format {kv.format.name} has calibrated scales, which {options.layout} does not cut yet; "
            "use a format without -cal"
        )
    return kv
