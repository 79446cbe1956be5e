"""`KVStorage`: the bytes of the keys and values of one layer, in slots. `TorchStorage` keeps them as tensors."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.observed_weights import key_mass, query_weights
from qbench.runtime.caches.cache import causal_attention
from quant.errors import InputError
from quant.kv.codec import Codec
from quant.models import AttentionRule


class KVStorage(ABC):
    """B sequences with as many slots each; a slot holds one token of every KV head, not the same one in each head.

    capacity   slots of a sequence
    one_width  whether values have to be as wide as keys
    """

    one_width: bool = False

    @property
    @abstractmethod
    def capacity(self) -> int: ...

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Memory that is held for all slots."""

    @abstractmethod
    def reserve(self, capacity: int) -> None:
        """Make room for so many slots per sequence; stored tokens stay."""

    @abstractmethod
    def trim(self, num_held: int) -> None:
        """Free the memory of slots behind the first `num_held`."""

    @abstractmethod
    def append(self, which: slice, num_held: int, k: Tensor, v: Tensor, slots: Tensor | None = None) -> None:
        """Store new tokens of the sequences `which` behind their first `num_held` slots.

        k, v   [B, G, T, D] float32, k rotated
        slots  [B, G] int64: slot of each head that the only new token takes instead, up to `num_held`
        """

    @abstractmethod
    def attend(
        self, which: slice, num_held: int, q: Tensor, rule: AttentionRule, observe: Observe | None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        """Attention of the queries of the last tokens over the first `num_held` slots.

        q        [B, H, T, D] float32, rotated
        returns  [B, H, T, D] float32; the weights that `CachePolicy.update` or `update_each` takes, None if nothing is
                 observed
        """

    @abstractmethod
    def compact(self, which: slice, num_held: int, keep: Tensor) -> None:
        """Move the slots `keep` [B, G, n], ascending, of the first `num_held` to the front."""

    @abstractmethod
    def read(self, which: slice, num_held: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `num_held` slots as attention reads them, [B, G, S, D] float32"""

    @abstractmethod
    def save(self) -> object:
        """A copy of everything that is stored, for `load`."""

    @abstractmethod
    def load(self, saved: object) -> None:
        """Store a result of `save` again; its memory is not used afterwards."""


class TorchStorage(KVStorage):
    """Tensors in a KV format, decoded at each step. Results and bytes are right; speed is not the aim."""

    def __init__(
        self, batch: int, capacity: int, codecs: tuple[Codec, Codec], scales: tuple[Tensor | None, Tensor | None]
    ) -> None:
        self._capacity = capacity
        self._sides = [_Side(codec, scale, batch, capacity) for codec, scale in zip(codecs, scales, strict=True)]

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def size_bytes(self) -> int:
        return sum(part.nbytes for side in self._sides for part in side.parts.values())

    def reserve(self, capacity: int) -> None:
        if capacity > self.capacity:
            self._resize(capacity)

    def trim(self, num_held: int) -> None:
        if num_held < self.capacity:
            self._resize(num_held)

    def _resize(self, capacity: int) -> None:
        self._capacity = capacity
        for side in self._sides:
            side.resize(capacity)

    def append(self, which: slice, num_held: int, k: Tensor, v: Tensor, slots: Tensor | None = None) -> None:
        for side, x in zip(self._sides, (k, v), strict=True):
            side.store(which, num_held, x, slots)

    def attend(
        self, which: slice, num_held: int, q: Tensor, rule: AttentionRule, observe: Observe | None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        keys, values = self.read(which, num_held)
        out = causal_attention(q, keys, values, rule)
        if observe is None:
            return out, None
        observed = q if observe.queries is None else q[:, :, -observe.queries :]
        return out, (query_weights if observe.each else key_mass)(observed, keys, rule)

    def compact(self, which: slice, num_held: int, keep: Tensor) -> None:
        for side in self._sides:
            side.compact(which, keep)

    def read(self, which: slice, num_held: int) -> tuple[Tensor, Tensor]:
        keys, values = (side.read(which, num_held) for side in self._sides)
        return keys, values

    def save(self) -> object:
        return self.capacity, [{name: part.clone() for name, part in side.parts.items()} for side in self._sides]

    def load(self, saved: object) -> None:
        assert isinstance(saved, tuple)
        self._capacity, sides = saved
        for side, parts in zip(self._sides, sides, strict=True):
            side.parts = {name: part.clone() for name, part in parts.items()}


class _Side:
    """Keys or values."""

    def __init__(self, codec: Codec, scale: Tensor | None, batch: int, capacity: int) -> None:
        self.codec, self.scale, self.batch, self.capacity = codec, scale, batch, capacity
        self.parts: dict[str, Tensor] = {}  # [B, G, capacity, P] each, made when the first token comes

    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        for name, part in self.parts.items():
            grown = part.new_zeros(*part.shape[:2], capacity, part.shape[3])
            common = min(capacity, part.shape[2])
            grown[:, :, :common] = part[:, :, :common]
            self.parts[name] = grown

    def store(self, which: slice, num_held: int, x: Tensor, slots: Tensor | None) -> None:
        for name, part in self.codec.encode(x, self.scale).items():
            if part.shape[1] != x.shape[1]:
                raise InputError("this KV format shares a scale among heads, which then have to keep the same tokens")
            if name not in self.parts:
                self.parts[name] = part.new_zeros(self.batch, part.shape[1], self.capacity, part.shape[3])
            held = _movable(self.parts[name][which])
            if slots is None:
                held[:, :, num_held : num_held + x.shape[2]] = _movable(part)
            else:
                held.scatter_(2, slots[:, :, None, None].expand_as(part), _movable(part))

    def compact(self, which: slice, keep: Tensor) -> None:
        for part in self.parts.values():
            held = _movable(part[which])
            index = keep[..., None].expand(-1, -1, -1, held.shape[3])
            held[:, :, : keep.shape[2]] = held.gather(2, index)

    def read(self, which: slice, num_held: int) -> Tensor:
        return self.codec.decode({name: part[which, :, :num_held] for name, part in self.parts.items()}, self.scale)


def _movable(part: Tensor) -> Tensor:
    """The same memory in a type that torch gathers and scatters: bytes instead of float8"""
    return part.view(torch.uint8) if part.dtype.itemsize == 1 else part
