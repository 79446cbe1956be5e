"""Caches: each owns the keys and values of a sequence, and the attention over them."""

from abc import abstractmethod
from itertools import pairwise

import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.in_torch import CausalAttention
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.kernel_view import KernelView, LayerView
from qbench.runtime.caches.latent_format import Latents
from qbench.runtime.caches.latent_view import LatentView, Span
from qbench.runtime.caches.sequences import CacheConfig, Sequences
from qbench.runtime.caches.storages import layer_scales
from quant.kv import KVScheme


class Cache(Sequences):
    """The contract between a model and whatever holds its past: `attend` once per layer between `begin` and
    `advance`.
    """

    one_width: bool = True  # whether keys and values are as wide as each other
    latents: Latents | None = None  # rows that all heads share; None: every KV head has its own keys and values

    def has_kernel_view(self, num_tokens: int) -> bool:
        """Whether `kernel_view` can be asked in this forward pass of so many tokens per sequence."""
        return False

    def kernel_view(self, num_tokens: int) -> KernelView:
        """Stores and places for one call of cpu_kernels over all layers, which takes the place of `attend`.

        num_tokens  new ones of each sequence, of a varlen batch all together
        """
        raise NotImplementedError(f"{type(self).__name__} has no kernel view")

    def has_layer_views(self, num_tokens: int) -> bool:
        """Whether `layer_view` can be asked in this forward pass of so many tokens per sequence."""
        return False

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        """Store and places for one call of cpu_kernels over the layer's attention, which takes the place of `attend`.

        num_tokens  as for `kernel_view`
        """
        raise NotImplementedError(f"{type(self).__name__} has no layer views")

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        """Sequences that attend together in this forward pass; num_tokens as for `kernel_view`"""
        raise NotImplementedError(f"{type(self).__name__} keeps no latents")

    def latent_view(self, layer: int, num_tokens: int) -> LatentView:
        """The layer's rows, for latent attention, which takes the place of `attend`; only if there are `latents`."""
        raise NotImplementedError(f"{type(self).__name__} keeps no latents")

    def move(self, device: torch.device) -> None:
        """Keep everything on another device of torch."""

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Store k and v of the new tokens and attend over all that each query may see.

        q          [B, H, T, D] float32, rotated; of a varlen batch [1, H, N, D], and so on
        k, v       [B, G, T, D] float32, k rotated; head h reads kv head h // (H / G)
        positions  [T] int64, length .. length + T - 1; of a varlen batch [N]
        returns    [B, H, T, D] float32
        """

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        """`attend` of q and k that are still to be rotated by `rope`: cos and sin of the new tokens."""
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)


class HoldsNothing(Cache):
    """A cache whose keys and values end with the forward pass."""

    @property
    def bytes_per_token(self) -> float:
        return 0

    @property
    def size_bytes(self) -> int:
        return 0


class NoCache(HoldsNothing):
    """Nothing kept: the new tokens are the whole sequence, read as the KV format would give them back.

    If the format has a residual, each query sees the tokens encoded that it would see encoded in decoding. If another
    format encodes several tokens together, a query sees its own group's keys already encoded. In decoding it sees them
    so only once the group is full: measured quality is a little below that of decoding.

    scheme     format of keys and values; None: they stay as they are
    attention  one of `attention.in_torch`
    """

    one_width = False

    def __init__(
        self,
        config: CacheConfig,
        batch: int = 1,
        scheme: KVScheme | None = None,
        attention: CausalAttention = causal_attention,
    ) -> None:
        super().__init__(config, batch)
        self.scheme, self.attention = scheme, attention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if self.cu_seqlens is None:
            return self._attend(layer, q, k, v)
        spans = pairwise(self.cu_seqlens.tolist())
        return torch.cat([self._attend(layer, *(x[:, :, start:end] for x in (q, k, v))) for start, end in spans], dim=2)

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`attend` of sequences of one length."""
        rule = self.rules[layer]
        if self.scheme is None:
            return self.attention(q, k, v, rule)
        fmt, (k_scale, v_scale) = self.scheme.format, layer_scales(self.scheme, layer)
        if fmt.residual:
            k, v = k.half().float(), v.half().float()
        keys, values = fmt.keys.round_trip(k, k_scale), fmt.values.round_trip(v, v_scale)
        if not fmt.residual:
            return self.attention(q, keys, values, rule)
        outputs = []
        for start, end in fmt.uniform_runs(0, q.shape[2]):
            encoded = fmt.num_encoded(end)
            seen_keys = torch.cat([keys[:, :, :encoded], k[:, :, encoded:end]], dim=2)
            seen_values = torch.cat([values[:, :, :encoded], v[:, :, encoded:end]], dim=2)
            outputs.append(self.attention(q[:, :, start:end], seen_keys, seen_values, rule))
        return torch.cat(outputs, dim=2)
