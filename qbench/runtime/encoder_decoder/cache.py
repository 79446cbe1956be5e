"""EncoderDecoderCache: the decoder's own keys and values, which grow, and those of the encoded input, made once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.places import OwnPages, check_sizes
from qbench.runtime.caches.torch_storage import TorchStorage
from qbench.runtime.encoder_decoder.relative_bias import RelativeBias
from quant.errors import InputError
from quant.kv.floats import Floats
from quant.models.encoder_decoder import EncoderDecoderConfig


@dataclass(frozen=True, slots=True)
class Encoded:
    """The keys and values of one input that the decoder layers read: [1, H, S, D] per layer."""

    keys: list[Tensor]
    values: list[Tensor]


class EncoderDecoderCache(KVCache):
    """One sequence for each input. A forward pass calls `attend` and then `attend_encoded` in every layer.

    bias     of the decoder's relative positions
    encoded  of each sequence's input; the inputs may have unlike lengths, and no sequence sees another's
    raises   InputError for no input, or an impossible capacity
    """

    def __init__(
        self, config: EncoderDecoderConfig, bias: RelativeBias, encoded: Sequence[Encoded], capacity: int = 256
    ) -> None:
        check_sizes(len(encoded), capacity)
        floats = Floats("float32")
        sizes = (len(encoded), min(capacity, config.max_positions), config.num_kv_heads)
        widths = (config.head_dim, config.value_dim)
        storages = [TorchStorage(*sizes, widths, (floats, floats)) for _ in range(config.num_layers)]
        super().__init__(config, OwnPages(storages, config.max_positions))
        self.bias = bias
        self.encoded = encoded
        self._bias_of_forward: tuple[tuple[int, int], Tensor] | None = None  # every layer wants the same

    def attend_encoded(self, layer: int, q: Tensor) -> Tensor:
        """q [B, H, T, D], of a varlen batch [1, H, N, D] -> the attention of each query to its sequence's input, as
        q
        """
        if self.cu_seqlens is None:
            ends = range(len(self.encoded) + 1)
            return torch.cat([self._read(layer, b, q[b : b + 1]) for b, _ in pairwise(ends)])
        spans = enumerate(pairwise(self.cu_seqlens.tolist()))
        return torch.cat([self._read(layer, b, q[:, :, start:end]) for b, (start, end) in spans], dim=2)

    def _read(self, layer: int, b: int, q: Tensor) -> Tensor:
        encoded = self.encoded[b]
        return F.scaled_dot_product_attention(q, encoded.keys[layer], encoded.values[layer], scale=1.0)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        past = self._past(layer, k.shape[2])
        self.memories[layer].append(k, v, past)
        if past.cu_seqlens is None:
            return self._biased(layer, q, past)
        return torch.cat([self._biased(layer, q[:, :, new], one) for one, new in past.each()], dim=2)

    def _biased(self, layer: int, q: Tensor, past: Past) -> Tensor:
        keys, values = self.memories[layer].read(past)
        bias = self._bias(q.shape[2], keys.shape[2])
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=1.0)

    def _bias(self, num_queries: int, num_keys: int) -> Tensor:
        size = (num_queries, num_keys)
        if self._bias_of_forward is None or self._bias_of_forward[0] != size:
            self._bias_of_forward = (size, self.bias(num_queries, num_keys))
        return self._bias_of_forward[1]


def check_inputs(sequences: Sequence[Sequence[int]]) -> None:
    if not sequences or not all(sequences):
        raise InputError("an input is empty, expected at least 1 token in each (an end token will do)")
