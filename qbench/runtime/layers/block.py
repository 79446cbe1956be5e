"""One decoder layer: attention, then a feed-forward net, each added to the stream. And all of them, one by one.

Which code runs the layers is decided in `paths.py`, per forward pass. `reference_decoder.py` has the equations of a
layer without that choice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.norm import Norm


@dataclass(slots=True, eq=False)
class Block:
    """attention: Attention or LatentAttention; feed_forward: one net, or routed experts.

    Each half runs in Python. Its attribute `step` does the same as one call of cpu_kernels, with the same bits; it is
    None if they have not packed the weights. `in_steps` gives a block of such calls.

    rope          which of the model's rotations is the layer's
    is_tokenwise  whether the net is known to compute each token without a look at the others of the call
    before        called before the layer's weights are read, for weights that come and go; None: they stay
    """

    attention: Any
    feed_forward: Any
    attention_norm: Norm
    feed_forward_norm: Norm
    rope: int = 0
    is_tokenwise: bool = False
    before: Callable[[], None] | None = None

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], positions: Tensor, cache: Cache) -> Tensor:
        x = self.attend(x, rotations, positions, cache)  # [B, T, K]
        return self.feed_forward(x, self.feed_forward_norm, x)  # [B, T, K]

    def attend(self, x: Tensor, rotations: Sequence[Rotation], positions: Tensor, cache: Cache) -> Tensor:
        """The first half: x plus attention."""
        if self.before is not None:
            self.before()
        return self.attention(x, self.attention_norm, rotations[self.rope], positions, cache)

    def in_steps(self, *, attention: bool, net: bool) -> "Block":
        """The block with its attention, its net or both as one call of cpu_kernels, if they can be one."""
        attend = (self.attention.step if attention else None) or self.attention
        feed_forward = (self.feed_forward.step if net else None) or self.feed_forward
        is_tokenwise = net and getattr(self.feed_forward, "is_tokenwise", False)
        norms = (self.attention_norm, self.feed_forward_norm)
        return Block(attend, feed_forward, *norms, self.rope, is_tokenwise, self.before)


class Blocks:
    """All layers of a model, one after the other; see `paths.Runner` for the call.

    If tokens do not depend on each other in the net, the last layer computes it for the wanted ones alone.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], step: Step, cache: Cache, last_only: bool) -> Tensor:
        positions = step.positions
        *earlier, last = self.blocks
        for block in earlier:
            x = block(x, rotations, positions, cache)
        if not last.is_tokenwise:
            return step.wanted(last(x, rotations, positions, cache), last_only)
        x = step.wanted(last.attend(x, rotations, positions, cache), last_only)
        return last.feed_forward(x, last.feed_forward_norm, x)
