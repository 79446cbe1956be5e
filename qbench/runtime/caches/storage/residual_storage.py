"""`ResidualStorage`: a store of cpu_kernels whose KV format keeps the most recent tokens in float16."""

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.caches.storage.kv_storage import JointStorage, held_tokens
from quant.kv import KVFormat, KVScheme
from quant.models import AttentionRule, ModelConfig


class ResidualStorage(JointStorage, KernelStorage):
    """Each page has encoded tokens of one sequence, and a ring of float16 for the recent ones.

    In a pool, sequences have rings of their own, and pages hold encoded tokens alone.

    A query sees the tokens encoded that it would see if the text came token by token, however it is cut. So tokens are
    stored and attended to in one call.
    """

    def __init__(
        self, config: ModelConfig, scheme: KVScheme, layer: int, num_pages: int, page_size: int, num_rings: int = 0
    ) -> None:
        super().__init__(config, scheme, layer, num_pages, page_size, num_rings=num_rings)
        self.format = scheme.format
        self.bytes_per_token = scheme.format.bytes_per_token(config.num_kv_heads, config.head_dim)  # encoded

    @property
    def size_bytes(self) -> int:
        return self.store.nbytes

    @property
    def ring_bytes(self) -> int:
        return self.store.ring_bytes

    def save_ring(self, ring: int) -> np.ndarray:
        saved = np.empty(self.ring_bytes, dtype=np.uint8)
        self.store.read_ring(ring, saved)
        return saved

    def load_ring(self, ring: int, saved: np.ndarray) -> None:
        self.store.write_ring(ring, saved)

    def pages_for(self, num_slots: int) -> int:
        """In a pool: those of the tokens that are encoded."""
        return -(-self.format.num_encoded(num_slots) // self.page_size)

    def append_attend(
        self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, past: Past, rule: AttentionRule
    ) -> Tensor:
        q, k, rope = self.rotated_in_part(q, k, rope)
        batch, num_heads, num_tokens, head_dim = q.shape
        rotated = torch.empty_like(q)
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        cos, sin = (None, None) if rope is None else (angles.numpy() for angles in rope)
        new = (q.numpy(), k.numpy(), v.numpy(), cos, sin)
        table, results = (past.block_table, past.ends), (rotated.numpy(), out.numpy())
        self.store.append_attend(*new, *table, *results, rule.scale, rule.window, past.cu_seqlens)
        return out

    def truncate(self, block_table: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """Encoded tokens that become floats again are floats as decoded."""
        self.store.truncate(block_table, before, after)


def residual_store_bytes(fmt: KVFormat, num_tokens: int, num_kv_heads: int, head_dim: int) -> float:
    """Bytes per layer and sequence that a store with room for `num_tokens` takes."""
    ring_tokens = fmt.residual + fmt.token_group
    encoded = fmt.num_encoded(held_tokens(num_tokens)) * fmt.bytes_per_token(num_kv_heads, head_dim)
    return encoded + ring_tokens * fmt.float_bytes_per_token(num_kv_heads, head_dim)
