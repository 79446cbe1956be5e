"""From a source to a model that runs: check, then read, pack and drop one tensor after another."""

import importlib

import torch
from torch import Tensor

from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.embedding import Embedding, StoredTable
from qbench.runtime.fused import FusedLinears
from qbench.runtime.linear import as_tensor, choose_linear, has_cpu_kernels
from qbench.runtime.llama import Attention, Block, FeedForward, LlamaModel
from qbench.runtime.norm import RMSNorm
from qbench.threads import check_threads
from quant.formats import dequantize
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.source import Source


def load_model(source: Source, *, impl: str = "auto", threads: int | None = None) -> LlamaModel:
    """The source's model, ready to run.

    impl     "auto": the best implementation for each format; "reference": float32 throughout
    threads  of torch and the kernels, for the whole process; None leaves them as they are
    raises   InputError for a config or tensors that do not fit
    """
    set_threads(threads)
    choose_linear("f32", impl)
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    return _Loader(source, config, impl).model()


def set_threads(threads: int | None) -> None:
    check_threads(threads)
    if threads is None:
        return
    torch.set_num_threads(threads)
    if has_cpu_kernels():
        importlib.import_module("cpu_kernels").set_num_threads(threads)


class _Loader:
    """Reads each tensor once; remembers what runs for each linear and how much memory it holds."""

    def __init__(self, source: Source, config: ModelConfig, impl: str) -> None:
        self.source = source
        self.config = config
        self.impl = impl
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0

    def model(self) -> LlamaModel:
        # The largest tensors first: what reading and packing them takes is free again before the layers need memory.
        embedding, head = self.tied() if self.config.tie_word_embeddings else self.untied()
        blocks = [self.block(layer) for layer in range(self.config.num_layers)]
        model = LlamaModel(self.config, embedding, blocks, self.norm(FINAL_NORM), head)
        model.impls, model.weight_bytes = self.impls, self.weight_bytes
        return model

    def tied(self) -> tuple[Embedding, FusedLinears]:
        """The table is held once, as the head packs it."""
        head = self.fused_tensors([HEAD], [self.source.read(f"{EMBEDDING}.weight")], [None])
        ((linear, _),) = head.groups
        return Embedding(linear, self.config.vocab_size), head

    def untied(self) -> tuple[Embedding, FusedLinears]:
        table = StoredTable(self.source.read(f"{EMBEDDING}.weight"))
        self.weight_bytes += table.size_bytes
        return Embedding(table, self.config.vocab_size), self.linears(HEAD)

    def block(self, layer: int) -> Block:
        prefix = f"model.layers.{layer}"
        attention = Attention(
            self.config,
            layer,
            qkv=self.linears(*(f"{prefix}.self_attn.{name}_proj" for name in "qkv"), bias=self.config.attention_bias),
            output=self.linears(f"{prefix}.self_attn.o_proj", bias=self.config.attention_bias),
        )
        feed_forward = FeedForward(
            gate_up=self.linears(f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj", bias=self.config.mlp_bias),
            down=self.linears(f"{prefix}.mlp.down_proj", bias=self.config.mlp_bias),
        )
        attention_norm = self.norm(f"{prefix}.input_layernorm")
        return Block(attention, feed_forward, attention_norm, self.norm(f"{prefix}.post_attention_layernorm"))

    def linears(self, *names: str, bias: bool = False) -> FusedLinears:
        qtensors = [self.source.read(f"{name}.weight") for name in names]
        biases = [self.vector(f"{name}.bias") if bias else None for name in names]
        return self.fused_tensors(names, qtensors, biases)

    def fused_tensors(self, names: list[str], qtensors: list[QTensor], biases: list[Tensor | None]) -> FusedLinears:
        linears = FusedLinears(qtensors, biases, self.impl)
        self.impls |= dict(zip(names, linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears

    def norm(self, name: str) -> RMSNorm:
        weight = self.vector(f"{name}.weight")
        self.weight_bytes += weight.nbytes
        return RMSNorm(weight, self.config.rms_norm_eps)

    def vector(self, name: str) -> Tensor:
        return as_tensor(dequantize(self.source.read(name)))
