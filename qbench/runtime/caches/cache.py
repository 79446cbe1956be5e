"""Caches: each owns the keys and values of a sequence, and the attention over them."""

from abc import abstractmethod

import torch
from torch import Tensor

from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.view.context_part import ContextPart
from qbench.runtime.caches.view.kernel_view import KernelView, LayerView
from qbench.runtime.caches.view.latent_view import LatentView, Span


class Cache(Sequences):
    """The contract between a model and whatever holds its past: `attend` once per layer between `begin` and
    `advance`.
    """

    one_width: bool = True  # whether keys and values are as wide as each other
    latents: Latents | None = None  # rows that all heads share; None: every KV head has its own keys and values

    def begin_apart(self, num_tokens: int) -> tuple["Cache", ContextPart] | None:
        """This lane's part of the beginning of a prompt of so many tokens, and the cache that keeps its tokens.

        None: each lane computes all tokens
        """
        return None

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
