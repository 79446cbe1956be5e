"""One decoder layer: attention, then a feed-forward net, each added to the stream."""

from collections.abc import Callable

from torch import Tensor

from qbench.runtime.cache import Cache
from qbench.runtime.norm import RMSNorm


class Block:
    """attention: Attention or LatentAttention; feed_forward: one net, or routed experts."""

    def __init__(
        self,
        attention: Callable[[Tensor, RMSNorm, tuple[Tensor, Tensor], Tensor, Cache], Tensor],
        feed_forward: Callable[[Tensor, RMSNorm, Tensor], Tensor],
        attention_norm: RMSNorm,
        feed_forward_norm: RMSNorm,
    ) -> None:
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = attention_norm
        self.feed_forward_norm = feed_forward_norm

    def __call__(self, x: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache) -> Tensor:
        x = self.attend(x, rope, positions, cache)
        return self.feed_forward(x, self.feed_forward_norm, x)

    def attend(self, x: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache) -> Tensor:
        """The first half: x and what attention adds to it."""
        return self.attention(x, self.attention_norm, rope, positions, cache)
