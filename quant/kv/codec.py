"""Codec: how one side of a KV cache, keys or values, becomes bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor


Parts: TypeAlias = "dict[str, Tensor]"


class Codec(ABC):
    """x [B, G, T, D] float32 <-> named parts, each with whole heads or one for all of them, and its own token axis.

    token_group  tokens that are encoded together: parts of a group hold 1 / token_group entries a token, and T is a
                 multiple of it
    calibrated   whether encode and decode are given a scale, or find one for each vector and store it in a part
    """

    token_group: int = 1
    calibrated: bool = False

    @abstractmethod
    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        """x [B, G, T, D] float32; scale [G or 1] float32 of a calibrated codec -> parts [B, G or 1, T or groups, P]"""

    @abstractmethod
    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        """-> [B, G, T, D] float32"""

    @abstractmethod
    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        """Bytes of one token of one layer, scales included."""

    @abstractmethod
    def check(self, head_dim: int) -> None:
        """raises InputError for heads that the codec cannot cut into its groups"""

    def round_trip(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """x as the cache would give it back; the tokens behind the last whole group are still as they came."""
        whole = x.shape[2] // self.token_group * self.token_group
        if not whole:
            return x
        kept = self.decode(self.encode(x[:, :, :whole], scale), scale)
        if whole == x.shape[2]:
            return kept
        out = x.clone()
        out[:, :, :whole] = kept
        return out
