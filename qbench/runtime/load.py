"""From a source to a model that runs: check, then read, pack and drop one tensor after another."""

from collections.abc import Callable
from functools import partial

from qbench.run.choices import CPU, EXACT, FAST, FLOAT32, set_threads
from qbench.run.options import DEFAULTS, RunOptions
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.plan import CacheNeeds
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.device import load_device_model
from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.linear import choose_linear
from qbench.runtime.layers.paths import AUTO as AUTO_PATH
from qbench.runtime.layers.paths import check_path
from qbench.runtime.model import Model
from qbench.runtime.offload import load_offloaded
from qbench.runtime.token_kinds import token_kinds
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.source import Source

IMPL_OF = {FAST: "auto", EXACT: "exact", FLOAT32: "reference"}  # compute -> the implementation of linears
# Loads this rank's part of a model; `qbench.runtime.parallel` adds it.
rank_loaders: list[Callable[[Source, RunOptions, str, str], DecoderModel]] = []


def load_model(
    source: Source, options: RunOptions = DEFAULTS, *, impl: str = "auto", path: str = AUTO_PATH
) -> DecoderModel:
    """The source's model, ready to run.

    options   its recipe and KV format are those of `source` already, as `open_subject` makes it. compute "exact": a
              token's logits do not depend on how many run with it, except for LLM.int8() and W8A8 with one scale per
              tensor, which look at all tokens of a call by definition; compute "float32": as impl "reference".
              threads hold for the whole process; None leaves them as they are
    impl      "auto": the best implementation for each format; "reference": float32 throughout
    path      the code that runs the layers on the CPU, one of `layers.paths.PATH_NAMES`; "auto": the best one
    raises    InputError for a config or tensors that do not fit, and for a path that cannot run the model; on another
              device than the CPU as `load_device_model`
    """
    check_path(path)
    device = options.device
    if device != CPU and path != AUTO_PATH:
        raise InputError(f"path {path!r} runs on the CPU alone; got device {device!r}, expected path 'auto' there")
    set_threads(options.threads)
    if device != CPU:
        return load_device_model(source, device, spec=options.cache_spec, attention=options.attention)
    if impl == "auto":
        impl = IMPL_OF[options.compute]
    choose_linear("f32", impl)
    if options.memory_bytes is not None:
        return load_offloaded(source, options, impl, path)
    if options.layout.num_ranks > 1:
        if not rank_loaders:
            raise InputError("no ranks have joined; call join_ranks first")
        return rank_loaders[0](source, options, impl, path)
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    kv = KVScheme.of(source.config, config, source.spec)
    return _Loader(source, config, impl).model(kv, options, path)


class _Loader:
    """Reads each tensor once."""

    def __init__(self, source: Source, config: ModelConfig, impl: str) -> None:
        self.source = source
        self.config = config
        self.impl = impl
        self.builder = BlockBuilder(config, source.read, impl)

    def model(self, kv: KVScheme | None, options: RunOptions, path: str) -> Model:
        kinds = partial(token_kinds, self.source.tokenizer)
        caches = CacheMaker(self.config, kv, self.impl, options.cache_spec, options.attention, CacheNeeds(kinds))
        # The largest tensors first: the memory for reading and packing them is free again before the layers need
        # memory.
        embedding, head = self.tied() if self.config.tie_word_embeddings else self.untied()
        blocks = [self.builder.block(layer) for layer in range(self.config.num_layers)]
        norm = self.builder.norm(FINAL_NORM)
        caches.needs.expand = [block.attention.expanded for block in blocks] if self.config.mla else []
        model = Model(self.config, embedding, blocks, norm, head, caches, path)
        model.impls, model.weight_bytes = self.builder.impls, self.builder.weight_bytes
        if chosen_latents(self.config, kv)[1] is not None:
            model.weight_bytes += sum(block.attention.pack() for block in blocks)
        return model

    def tied(self) -> tuple[Embedding, FusedLinears]:
        table, head = self.builder.tied_table(EMBEDDING, HEAD)
        return self.builder.embedding(table), head

    def untied(self) -> tuple[Embedding, FusedLinears]:
        table = self.builder.stored_table(EMBEDDING)
        return self.builder.embedding(table), self.builder.linears(HEAD)
