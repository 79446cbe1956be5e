"""Bytes of weights as the runtime holds them, whatever the KV format."""

import math
from collections import Counter
from collections.abc import Mapping

from qbench.runtime.checkpoint import check_tensors
from qbench.runtime.layers.latent_heads import heads_format, packed_heads_bytes
from qbench.runtime.layers.linear import choose_linear
from qbench.runtime.workspace import FLOAT_BYTES
from quant.models import EMBEDDING, HEAD, POSITIONS, ModelConfig
from quant.present import present
from quant.source import Source, TensorInfo


class WeightsMemory:
    """Memory of a model's weights; its tensors are read once.

    by_format      format -> bytes as stored
    held_bytes     after load: an untied embedding as stored, linears as their implementation holds them
    is_packed      whether cpu_kernels run every linear of the layers, so that they take steps together
    raises         InputError for tensors that do not fit the config
    """

    def __init__(self, source: Source, config: ModelConfig, impl: str = "auto") -> None:
        self.config, self.impl = config, impl
        self.by_format: dict[str, int] = {}
        for info in source.tensors.values():
            self.by_format[info.format] = self.by_format.get(info.format, 0) + info.size_bytes
        expected = check_tensors(config, source.tensors)
        own = {name: source.tensors[name] for name in expected}
        self.held_bytes = held_bytes(own, is_tied=config.tie_word_embeddings, impl=impl)
        in_layers = {own[name].format for name in own if is_linear(name, own[name]) and name not in (EMBEDDING, HEAD)}
        self.is_packed = all(choose_linear(name, impl).is_packed for name in in_layers)
        self._latent_formats = _latent_formats(source) if config.mla else None

    def latent_heads_bytes(self, *, in_kernels: bool) -> int:
        """The up-projections of latent attention as they meet queries and outputs of a cache that keeps latents,
        in addition to those that make keys and values
        """
        up, beside = present(self._latent_formats)
        name = heads_format(up, beside, self.impl) if in_kernels else None
        return self.config.num_layers * packed_heads_bytes(present(self.config.mla), self.config.num_heads, name)


def held_bytes(tensors: Mapping[str, TensorInfo], *, is_tied: bool, impl: str = "auto") -> int:
    """Bytes of the tensors after load. is_tied: whether the embedding is a linear, too, because it is the head"""
    total, linears = 0, Counter()  # thousands of experts are a handful of formats and shapes
    for name, info in tensors.items():
        if name == EMBEDDING and not is_tied:
            total += info.size_bytes
        elif is_linear(name, info):
            linears[info.format, info.shape, info.size_bytes] += 1
        else:
            total += FLOAT_BYTES * math.prod(info.shape)
    for (name, shape, stored_bytes), count in linears.items():
        total += count * choose_linear(name, impl).held_bytes(name, shape, stored_bytes)
    return total


def is_linear(name: str, info: TensorInfo) -> bool:
    """Whether the tensor is a weight that inputs are multiplied with, or an embedding."""
    return len(info.shape) > 1 and name != POSITIONS


def _latent_formats(source: Source) -> tuple[str, str]:
    """Formats of the projection up from latents, and of the one that follows its values"""
    up, beside = (source.tensors[f"model.layers.0.self_attn.{name}_proj.weight"].format for name in ("kv_b", "o"))
    return up, beside
