"""One decoder layer: attention, then a feed-forward net, each added to the stream."""

from collections.abc import Callable, Sequence

from torch import Tensor

from qbench.runtime.caches.cache import Cache
from qbench.runtime.layers.norm import Norm
from qbench.runtime.layers.rotations import Rotation


class Block:
    """attention: Attention or LatentAttention; feed_forward: one net, or routed experts.

    rope   which of the model's rotations is the layer's
    """

    def __init__(
        self,
        attention: Callable[[Tensor, Norm, Rotation, Tensor, Cache], Tensor],
        feed_forward: Callable[[Tensor, Norm, Tensor], Tensor],
        attention_norm: Norm,
        feed_forward_norm: Norm,
        rope: int = 0,
    ) -> None:
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = attention_norm
        self.feed_forward_norm = feed_forward_norm
        self.rope = rope

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], positions: Tensor, cache: Cache) -> Tensor:
        x = self.attend(x, rotations, positions, cache)
        return self.feed_forward(x, self.feed_forward_norm, x)

    def attend(self, x: Tensor, rotations: Sequence[Rotation], positions: Tensor, cache: Cache) -> Tensor:
        """The first half: x and what attention adds to it."""
        return self.attention(x, self.attention_norm, rotations[self.rope], positions, cache)
