"""LayeredCache: some layers in one cache and some in another."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from quant.kv import KVScheme
from quant.models import ModelConfig


class LayeredCache(Cache):
    """Parts that hold the same tokens, each of its own layers.

    parts    caches made for `config_of` their layers, in order of which is asked first what it can forget
    layers   of each part, in order
    """

    def __init__(self, config: ModelConfig, parts: Sequence[Cache], layers: Sequence[Sequence[int]]) -> None:
        super().__init__(config, parts[0].batch)
        self.parts = parts
        self.one_width = all(part.one_width for part in parts)
        self._place = {layer: (part, i) for part, own in zip(parts, layers, strict=True) for i, layer in enumerate(own)}

    @property
    def bytes_per_token(self) -> float:
        return sum(part.bytes_per_token for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    def pad_left(self, num_columns: Sequence[int] | np.ndarray) -> None:
        super().pad_left(num_columns)
        for part in self.parts:
            part.pad_left(num_columns)

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        for part in self.parts:
            part.begin(tokens, num_valid)
        return step

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        part, index = self._place[layer]
        return part.attend(index, q, k, v, positions)

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        part, index = self._place[layer]
        return part.rope_attend(index, q, k, v, rope, positions)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        for part in self.parts:
            part.advance(num_tokens)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        for part in self.parts:
            part.truncate(seq_len)
        super().truncate(seq_len)


def config_of(config: ModelConfig, layers: Sequence[int]) -> ModelConfig:
    """As if the model had these layers alone, as far as a cache can tell."""
    return replace(config, num_layers=len(layers), windows=tuple(config.windows[layer] for layer in layers))


def scheme_of(scheme: KVScheme | None, layers: Sequence[int]) -> KVScheme | None:
    if scheme is None or scheme.k_scale is None or scheme.v_scale is None:
        return scheme
    own = list(layers)
    return replace(scheme, k_scale=scheme.k_scale[own], v_scale=scheme.v_scale[own])
