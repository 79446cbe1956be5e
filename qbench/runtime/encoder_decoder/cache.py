"""Caches of a decoder on encoded inputs: its own keys and values, which grow. Those of the inputs are made once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import OwnPages, check_sizes
from qbench.runtime.caches.storage.torch_storage import TorchStorage
from qbench.runtime.encoder_decoder.relative_bias import RelativeBias
from quant.errors import InputError
from quant.kv.floats import Floats
from quant.models import AttentionRule
from quant.models.encoder_decoder import EncoderDecoderConfig


@dataclass(frozen=True, slots=True)
class Encoded:
    """The keys and values of one input that the decoder layers read: [1, H, S, D] per layer."""

    keys: list[Tensor]
    values: list[Tensor]


class BiasedAttention:
    """Attention of the decoder to its own tokens, as `TorchStorage.attention`.

    bias   of the decoder's relative positions
    """

    def __init__(self, bias: RelativeBias) -> None:
        self.bias = bias
        self._last: tuple[tuple[int, int], Tensor] | None = None  # every layer wants the same

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, rule: AttentionRule) -> Tensor:
        size = (q.shape[2], keys.shape[2])
        if self._last is None or self._last[0] != size:
            self._last = (size, self.bias(*size))
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self._last[1], scale=1.0)


def decoder_cache(config: EncoderDecoderConfig, bias: RelativeBias, batch: int, capacity: int) -> KVCache:
    """An empty cache for `batch` sequences. raises InputError for impossible sizes"""
    check_sizes(batch, capacity)
    floats, attention = Floats("float32"), BiasedAttention(bias)
    sizes = (batch, min(capacity, config.max_positions), config.num_kv_heads)
    widths = (config.head_dim, config.value_dim)
    layers = range(config.num_layers)
    storages = [TorchStorage(*sizes, widths, (floats, floats), attention=attention) for _ in layers]
    return KVCache(config, OwnPages(storages, config.max_positions))


def check_inputs(sequences: Sequence[Sequence[int]]) -> None:
    if not sequences or not all(sequences):
        raise InputError("an input is empty, expected at least 1 token in each (an end token will do)")
