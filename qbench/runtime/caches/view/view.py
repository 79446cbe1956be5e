"""`View`: which of its sequence's tokens a query of a forward pass sees, and at which positions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.step import Past, Step
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.view.kernel_view import SinkAngles
from quant.models import AttentionRule

if TYPE_CHECKING:
    from qbench.runtime.caches.view.context_part import ContextPart


@dataclass(frozen=True, slots=True)
class QKV:
    """Queries, keys and values of a layer in a forward pass.

    q        [B, H, T, D] float32, of a varlen batch [1, H, N, D], and so on
    k, v     [B, G, T, D] float32
    rope     cos and sin by which q and k are still to be rotated; None: they are
    """

    q: Tensor
    k: Tensor
    v: Tensor
    rope: tuple[Tensor, Tensor] | None = None

    def append(self, storage: KVStorage, past: Past) -> Tensor:
        """Store keys and values in the last of the slots `past`; returns q rotated."""
        if self.rope is not None:
            return storage.rope_append(self.q, self.k, self.v, self.rope, past)
        storage.append(self.k, self.v, past)
        return self.q


class View:
    """All tokens, or those of the layer's window, at their places in the text.

    max_seq_len  most tokens of a text; None: as many as the model's context holds
    in_kernels   whether fused calls of cpu_kernels may run the forward pass that has begun
    """

    max_seq_len: int | None = None

    @property
    def in_kernels(self) -> bool:
        return True

    def next_position(self, seq_lens: Any) -> Any:
        """As `Sequences.next_position`."""
        return seq_lens

    def num_slots(self, seq_lens: Any) -> Any:
        """Slots that sequences of so many tokens use, an int or [B] int64, as long as no token leaves its page."""
        return seq_lens

    def begin(self, step: Step, sequences: Sequences) -> None:
        """A forward pass begins; sequences: as they are before it"""

    def begin_apart(self, batch: int, num_tokens: int) -> "ContextPart | None":
        """The view of a lane's part of the beginning of `batch` prompts, as `Cache.begin_apart`."""
        return None

    def sink_angles(self, layer: int) -> SinkAngles | None:
        """Angles for fused calls that replace those of the tokens' positions; None: there are no sinks"""
        return None

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        """Store the new tokens in the last of the slots `past`, and attend.

        returns  [B, H, T, D] float32
        """
        return storage.append_attend(new.q, new.k, new.v, new.rope, past, rule)


ALL_TOKENS = View()
