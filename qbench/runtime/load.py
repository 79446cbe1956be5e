"""From a source to a model that runs: check, then read, pack and drop one tensor after another."""

import importlib

import torch

from qbench.runtime.blocks import BlockBuilder
from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.embedding import Embedding, StoredTable
from qbench.runtime.fused import FusedLinears
from qbench.runtime.linear import choose_linear, has_cpu_kernels
from qbench.runtime.model import Model
from qbench.threads import check_threads
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.source import Source


def load_model(source: Source, *, impl: str = "auto", threads: int | None = None) -> Model:
    """The source's model, ready to run.

    impl     "auto": the best implementation for each format; "reference": float32 throughout
    threads  of torch and the kernels, for the whole process; None leaves them as they are
    raises   InputError for a config or tensors that do not fit
    """
    set_threads(threads)
    choose_linear("f32", impl)
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    kv = KVScheme.of(source.config, config, source.spec)
    return _Loader(source, config, impl).model(kv)


def set_threads(threads: int | None) -> None:
    check_threads(threads)
    if threads is None:
        return
    torch.set_num_threads(threads)
    if has_cpu_kernels():
        importlib.import_module("cpu_kernels").set_num_threads(threads)


class _Loader:
    """Reads each tensor once."""

    def __init__(self, source: Source, config: ModelConfig, impl: str) -> None:
        self.source = source
        self.config = config
        self.impl = impl
        self.builder = BlockBuilder(config, source.read, impl)

    def model(self, kv: KVScheme | None) -> Model:
        # The largest tensors first: what reading and packing them takes is free again before the layers need memory.
        embedding, head = self.tied() if self.config.tie_word_embeddings else self.untied()
        blocks = [self.builder.block(layer) for layer in range(self.config.num_layers)]
        model = Model(self.config, embedding, blocks, self.builder.norm(FINAL_NORM), head, kv, self.impl)
        model.impls, model.weight_bytes = self.builder.impls, self.builder.weight_bytes
        return model

    def tied(self) -> tuple[Embedding, FusedLinears]:
        """The table is held once, as the head packs it."""
        head = self.builder.fused_tensors((HEAD,), [self.source.read(f"{EMBEDDING}.weight")], [None])
        ((linear, _),) = head.linears
        return Embedding(linear, self.config.vocab_size), head

    def untied(self) -> tuple[Embedding, FusedLinears]:
        table = StoredTable(self.source.read(f"{EMBEDDING}.weight"))
        self.builder.weight_bytes += table.size_bytes
        return Embedding(table, self.config.vocab_size), self.builder.linears(HEAD)
