"""Multi-head latent attention: keys and values of all heads out of one low-rank latent a token."""

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.cache import Cache
from qbench.runtime.fused import FusedLinears
from qbench.runtime.norm import RMSNorm
from qbench.runtime.rope import rotate
from quant.models import ModelConfig

LATENT_EPS = 1e-6  # of the norms inside the attention, whatever the config says of the others


class LatentAttention:
    """Every head's keys and values are made from the latent before they are cached.

    A cache wants keys and values of one width, so values are padded with zeros up to the keys'.

    down            x -> queries (or their latent, where they have one), and the latent of keys and values
    q_norm, q_up    from the latent of the queries, or None
    kv_norm, kv_up  from the latent of keys and values
    source          DeepSeek-V2, arXiv:2405.04434, section 2.1
    """

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        down: FusedLinears,
        kv_norm: RMSNorm,
        kv_up: FusedLinears,
        output: FusedLinears,
        q_norm: RMSNorm | None = None,
        q_up: FusedLinears | None = None,
    ) -> None:
        self.sizes = config.mla
        self.num_heads = config.num_heads
        self.softmax_scale = config.rope.softmax_scale
        self.layer = layer
        self.down, self.output = down, output
        self.q_norm, self.q_up = q_norm, q_up
        self.kv_norm, self.kv_up = kv_norm, kv_up

    def __call__(
        self, x: Tensor, norm: RMSNorm, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache
    ) -> Tensor:
        q, latent = self.down(x, norm)
        if self.q_up is not None:
            (q,) = self.q_up(q, self.q_norm)
        k, v = self._keys_values(latent, rope)
        out = cache.attend(self.layer, self._queries(q, rope), k, v, positions)  # [B, H, T, D]
        del k, v  # free before the last product
        (y,) = self.output(out[..., : self.sizes.v_head_dim].transpose(1, 2).flatten(2), residual=x)
        return y

    def _queries(self, q: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """[B, T, H D] -> [B, H, T, D], the last qk_rope_head_dim of D rotated"""
        kept, turned = self._heads(q).split((self.sizes.qk_nope_head_dim, self.sizes.qk_rope_head_dim), -1)
        q = torch.cat((kept, rotate(halves(turned), *rope)), -1)
        return q if self.softmax_scale == 1 else q * self.softmax_scale

    def _keys_values(self, latent: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[B, T, latent_size] -> k, v [B, H, T, D]"""
        sizes = self.sizes
        latent, turned = latent.split((sizes.kv_lora_rank, sizes.qk_rope_head_dim), -1)
        (up,) = self.kv_up(latent, self.kv_norm)
        kept, v = self._heads(up).split((sizes.qk_nope_head_dim, sizes.v_head_dim), -1)  # [B, H, T, ...]
        turned = rotate(halves(turned)[:, None], *rope)  # [B, 1, T, R]: one key for all heads
        k = torch.cat((kept, turned.expand(-1, self.num_heads, -1, -1)), -1)
        return k, F.pad(v, (0, sizes.qk_head_dim - sizes.v_head_dim))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, T, H D] -> [B, H, T, D]


def halves(x: Tensor) -> Tensor:
    """Rotary pairs from neighbours, as DeepSeek stores them, to entries half a width apart, as `rotate` turns them.

    Queries and keys change alike, so no product of the two changes.
    """
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
