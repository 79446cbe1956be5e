"""`ShareGroups`: a lane's share of keys and values in a KV format that encodes several tokens together, in torch."""

from typing import NamedTuple

import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention, concat
from qbench.runtime.attention.ruled_attention import attention_at
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.grouped_storage import GroupedStorage, Groups, Side
from qbench.runtime.caches.storage.share import NewTokens, Share
from quant.errors import InputError
from quant.kv import KVFormat
from quant.kv.codec import Codec
from quant.models import AttentionRule


class ShareGroups(GroupedStorage):
    """Each lane keeps its encoded groups. The recent tokens, still floats, are on all lanes, since any lane may encode
    them; a lane attends to its own of them.
    """

    def __init__(self, groups: Groups, share: Share) -> None:
        super().__init__(groups)
        self.share = share

    def _side(self, codec: Codec, scale: Tensor | None) -> Side:
        return ShareSide(self.format, codec, scale, self.share)

    def append_part(
        self, q: Tensor, k: Tensor, v: Tensor, past: Past, rule: AttentionRule, new: NewTokens
    ) -> PartialAttention:
        rows = [slice(b, b + 1) for b in range(len(q))]
        parts = [
            self._of_page(page, q[row], k[row], v[row], rule, new)
            for row, page in zip(rows, past.block_table[:, 0].tolist(), strict=True)
        ]
        return concat(parts, 0)

    def _of_page(
        self, page: int, q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule, new: NewTokens
    ) -> PartialAttention:
        start, end = int(new.positions[0]), int(new.positions[-1]) + 1
        parts = []
        for first, last in self.format.uniform_runs(start, end):
            some = slice(first - start, last - start)
            keys, values = (side.extend(x[:, :, some]) for side, x in zip(self._sides(page), (k, v), strict=True))
            held = new.share.positions(last)
            parts.append(attention_at(q[:, :, some], keys, values, rule, new.positions[some], held))
        return concat(parts, 2)


class _Marked(NamedTuple):
    """num_encoded: tokens that were encoded; tail: the tokens after them, as in `ShareSide`"""

    num_encoded: int
    tail: Tensor | None

    @property
    def seq_len(self) -> int:
        return self.num_encoded + (0 if self.tail is None else self.tail.shape[2])


NO_MARK = _Marked(0, None)


class ShareSide(Side):
    """Keys or values of one sequence, of which `parts` has the own tokens or groups alone.

    encoded  tokens of all lanes that are encoded
    tail     [1, G, T, D] the tokens after them, of all lanes
    raises   InputError by `check_truncate`, for a length that is neither 0 nor marked, if tokens would be floats again
    """

    def __init__(self, fmt: KVFormat, codec: Codec, scale: Tensor | None, share: Share) -> None:
        super().__init__(fmt, codec, scale)
        self.share, self._marked = share, NO_MARK

    def extend(self, x: Tensor) -> Tensor:
        """Append x [1, G, T, D] of all lanes; returns the own tokens as they are read, [1, G, S, D]"""
        x = self._as_tail(x)
        tail = x if self.tail is None else torch.cat([self.tail, x], 2)
        first, last = self.encoded, self.encoded + tail.shape[2]
        self.encoded = self._num_encoded(last)
        new, self.tail = tail[:, :, : self.encoded - first], tail[:, :, self.encoded - first :].clone()
        own = self.share.owns(torch.arange(first, self.encoded))
        if own.any():
            self._add(self.codec.encode(new[:, :, own].float(), self.scale))
        recent = self.tail[:, :, self.share.owns(torch.arange(self.encoded, last))].float()
        return torch.cat([self.codec.decode(self.parts, self.scale), recent], 2) if self.parts else recent

    def mark(self) -> None:
        self._marked = _Marked(self.encoded, self.tail)

    def check_truncate(self, seq_len: int) -> None:
        if self._num_encoded(seq_len) < self.encoded and seq_len not in (0, self._marked.seq_len):
            raise InputError(
                f"{self.format.name} on several lanes goes back to the marked length or to 0; got {seq_len} tokens"
            )

    def truncate(self, seq_len: int) -> None:
        if self._num_encoded(seq_len) < self.encoded:
            marked = self._marked if seq_len else NO_MARK
            own = self.share.count(marked.num_encoded)
            self.parts = self._held(own) if own else {}
            self.encoded, self.tail = marked
        elif self.tail is not None:
            self.tail = self.tail[:, :, : seq_len - self.encoded]
        if seq_len < self._marked.seq_len:
            self._marked = NO_MARK  # other tokens will follow

    def _add(self, parts: dict[str, Tensor]) -> None:
        for name, part in parts.items():
            self.parts[name] = torch.cat([self.parts[name], part], 2) if name in self.parts else part
