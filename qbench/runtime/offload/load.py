"""From a source to a model that runs within a memory limit, its weights streamed from a file if they do not fit."""

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Self

from torch import Tensor

from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.plan import CacheNeeds
from qbench.runtime.caches.step import Step
from qbench.runtime.checkpoint import FINAL_NORM, HEAD, check_tensors
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.model import Model
from qbench.runtime.offload.budget import Budget, Use
from qbench.runtime.offload.builder import FileTable, StreamedBuilder
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.experts import ExpertStore
from qbench.runtime.offload.placement import split_experts
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.stream_file import stream_file, unwritten_bytes
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import Unit, streamable_units
from qbench.runtime.offload.weights import StreamedWeights
from qbench.runtime.token_kinds import token_kinds
from quant.kv import KVScheme
from quant.models import EMBEDDING, ModelConfig
from quant.source import Source


def load_offloaded(
    source: Source, options: RunOptions, impl: str, path: str, notice: Callable[[str], None] | None = None
) -> Model:
    """The source's model within `options.memory_bytes` of the process's memory; its logits are those of `load_model`.

    notice   called with a line before a file is written next to the model; None: stderr
    raises   InputError for a machine without the kernels, and for a limit below one layer; the first forward pass
             refuses one that its own sizes make too small
    """
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    units, budget = streamable_units(source, config, impl), Budget(source, options, impl)
    budget.check(units, Use(), unwritten_bytes(source, units))
    file = stream_file(source, units, notice or _on_stderr)
    region = Region(units)
    streamer = Streamer(DirectFile(file.path), region, units, file.starts, file.crcs)
    builder = StreamedBuilder(config, source.read, impl, units, file, region)
    store = builder.store = expert_store(streamer, region, units, options.expert_placement, config)
    kv = KVScheme.of(source.config, config, source.spec)
    needs = CacheNeeds(partial(token_kinds, source.tokenizer))
    caches = CacheMaker(config, kv, impl, options.cache_spec, options.attention, needs)
    embedding = builder.embedding(FileTable(file))
    head = _head(builder, config)
    blocks = [builder.block(layer) for layer in range(config.num_layers)]
    norm = builder.norm(FINAL_NORM)
    caches.needs.expand = [block.attention.expanded for block in blocks] if config.mla else []
    weights = StreamedWeights(streamer, region, units, budget, store)
    for layer, block in enumerate(blocks):
        block.before = partial(weights.enter, f"layer {layer}")
    model = OffloadedModel(config, embedding, blocks, norm, weights.head(head), caches, path)
    model.impls, model.weight_bytes, model.weights = builder.impls, builder.weight_bytes, weights
    weakref.finalize(model, streamer.close)
    return model


def check_limit(source: Source, options: RunOptions, use: Use) -> None:
    """Refuse a limit that is too small for this use, before a file is written or weights are read. raises InputError"""
    if options.memory_bytes is not None:
        impl = "auto"  # units and activations are the same for each compute that packs
        units = streamable_units(source, ModelConfig.of(source), impl)
        Budget(source, options, impl).check(units, use, unwritten_bytes(source, units))


def expert_store(
    streamer: Streamer, region: Region, units: list[Unit], rule: str, config: ModelConfig
) -> ExpertStore | None:
    """None for a model without routed experts that can be streamed."""
    _, experts = split_experts(units)
    return ExpertStore(streamer, region, experts, rule, config.moe) if config.moe and experts else None


def _head(builder: StreamedBuilder, config: ModelConfig) -> FusedLinears:
    """The product with the vocabulary; its kernel is named after the head even if the weight is the embedding."""
    head, table = (name.removesuffix(".weight") for name in (HEAD, EMBEDDING))
    if not config.tie_word_embeddings:
        return builder.linears(head)
    linears = builder.linears(table)
    builder.impls[head] = builder.impls.pop(table)
    return linears


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr)


class OffloadedModel(Model):
    """A Model that makes room before each forward pass."""

    weights: StreamedWeights

    @classmethod
    def of(cls, model: Model, weights: StreamedWeights) -> Self:
        """The layers of a model, and a head that asks for its unit."""
        parts = model.config, model.embedding, model.blocks, model.norm, weights.head(model.head), model._caches
        made = cls(*parts)
        made.impls, made.weight_bytes, made.weights = model.impls, model.weight_bytes, weights
        return made

    def new_cache(
        self, batch: int = 1, capacity: int = 256, *, spec: CacheSpec | None = None, mode: str | None = None
    ) -> Cache:
        cache = super().new_cache(batch, capacity, spec=spec, mode=mode)
        streamer = self.weights.streamer
        with streamer.at_rest():
            self.weights.budget.expect(cache, capacity, streamer.resident_bytes)
        return cache

    def _logits(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        self.weights.begin(cache, step)
        outputs = super()._logits(step, cache, last_only)
        if self.runs_head:  # else the head stays for the pieces of logits, until the next pass begins
            self.weights.leave()
        return outputs
