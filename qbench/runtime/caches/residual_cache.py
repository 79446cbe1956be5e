"""`ResidualCache`: a KernelCache whose KV format keeps the most recent tokens in float16."""

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.kernel_cache import KernelCache, held_tokens
from quant.kv import KVFormat, KVScheme
from quant.models import ModelConfig


class ResidualCache(KernelCache):
    """Each page of a store has encoded tokens of one sequence, and a ring of float16 for the recent ones.

    A query sees the tokens encoded that it would see if the text came token by token, however it is cut.
    """

    def __init__(self, config: ModelConfig, scheme: KVScheme, batch: int = 1, capacity: int = 256) -> None:
        super().__init__(config, scheme, batch, capacity)
        self._bytes_per_token = config.num_layers * scheme.format.bytes_per_token(config.num_kv_heads, config.head_dim)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of an encoded token."""
        return self._bytes_per_token

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        return self._append_attend(layer, q, k, v, None)

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        if rope[0].shape[-1] < q.shape[-1]:  # a part of each head is rotated
            return super().rope_attend(layer, q, k, v, rope, positions)
        return self._append_attend(layer, q, k, v, rope)

    def _append_attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None) -> Tensor:
        store, ends = self.reserve(layer, k.shape[2])
        batch, num_heads, num_tokens, head_dim = q.shape
        rotated = torch.empty_like(q)
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        cos, sin = (None, None) if rope is None else (angles.numpy() for angles in rope)
        new = (q.numpy(), k.numpy(), v.numpy(), cos, sin)
        rule, results = self.rules[layer], (rotated.numpy(), out.numpy())
        store.append_attend(*new, self.block_table, ends, *results, rule.scale, rule.window, self.cu_seqlens)
        return out

    def truncate(self, seq_len: int | np.ndarray) -> None:
        """Forget all tokens from `seq_len` on. Encoded tokens that become floats again are floats as decoded."""
        before = self.seq_lens
        super().truncate(seq_len)
        for store in self.stores:
            store.truncate(self.block_table, before, self.seq_lens)


def residual_store_bytes(fmt: KVFormat, num_tokens: int, num_kv_heads: int, head_dim: int) -> float:
    """Bytes per layer and sequence that a store with room for `num_tokens` takes."""
    ring_tokens = fmt.residual + fmt.token_group
    encoded = fmt.num_encoded(held_tokens(num_tokens)) * fmt.bytes_per_token(num_kv_heads, head_dim)
    return encoded + ring_tokens * fmt.float_bytes_per_token(num_kv_heads, head_dim)
