"""`SlotSide`: keys or values of one layer of one sequence in groups of tokens, of which a policy may take any."""

import torch
from torch import Tensor

from qbench.runtime.caches.storage.grouped_storage import Side
from quant.kv import KVFormat
from quant.present import present


class SlotSide(Side):
    """Tokens have places: encoded groups come first, then floats in the order of their arrival.

    New tokens are floats until `finish`, so that a policy can evict some of a prompt before the others are encoded.

    slots   [G, n] int64: slot of the token of each place; None: no tokens
    """

    slots: Tensor | None = None

    @property
    def num_held(self) -> int:
        return self.encoded + (0 if self.tail is None else self.tail.shape[2])

    def add(self, x: Tensor, slots: Tensor) -> None:
        """Append x [1, G, T, D] as floats, in slots [G, T]."""
        x = self._as_tail(x)
        self.tail = x.clone() if self.tail is None else torch.cat([self.tail, x], dim=2)
        self.slots = slots if self.slots is None else torch.cat([self.slots, slots], dim=1)

    def finish(self) -> None:
        """Encode the tokens that leave the residual."""
        new = self._num_encoded(self.num_held) - self.encoded
        if new <= 0 or self.tail is None:
            return
        self._store(self.codec.encode(self.tail[:, :, :new].float(), self.scale), new)
        self.tail = self.tail[:, :, new:].clone() if new < self.tail.shape[2] else None

    def read(self) -> Tensor:
        """All tokens by place, [1, G, n, D] float32"""
        held = [self.codec.decode(self.parts, self.scale)] if self.encoded else []
        return torch.cat([*held, self.tail.float()], dim=2) if self.tail is not None else held[0]

    def seen(self, num_tokens: int) -> Tensor:
        """The first `num_tokens` by slot as the query of the last of them reads them, [1, G, num_tokens, D] float32"""
        x, due = self.read()[:, :, :num_tokens], self._num_encoded(num_tokens)
        if due > self.encoded:
            new = self.codec.round_trip(x[:, :, self.encoded : due], self.scale)
            x = torch.cat([x[:, :, : self.encoded], new, x[:, :, due:]], dim=2)
        return self.by_slot(x)

    def by_slot(self, x: Tensor) -> Tensor:
        """x [1, G, n, D] of the first n places -> the same in the order of their slots"""
        places = present(self.slots)[:, : x.shape[2]].argsort(1)
        return x.gather(2, places[None, ..., None].expand(x.shape))

    def arrange(self, order: Tensor, encoded: int) -> None:
        """Put the tokens of the places `order` [G, m] first to last, and forget the others.

        A group whose tokens stay together keeps its bytes, and so does each token that is encoded by itself. A group
        with other tokens is encoded again, from its tokens as they are read.

        encoded   tokens that are encoded from now on; all, if neither groups nor a residual say otherwise
        """
        if not self.format.residual and self.codec.token_group == 1:
            encoded = order.shape[1]
        x, self.slots = self.read(), present(self.slots).gather(1, order)
        x = x.gather(2, order[None, ..., None].expand(1, *order.shape, x.shape[3]))
        parts = self.codec.encode(x[:, :, :encoded], self.scale) if encoded else {}
        if self.encoded:
            self._keep_bytes(parts, order[:, :encoded])
        self.parts, self.encoded = parts, encoded
        self.tail = self._as_tail(x[:, :, encoded:]).clone() if encoded < order.shape[1] else None

    def _keep_bytes(self, parts: dict[str, Tensor], order: Tensor) -> None:
        """Take the bytes of groups that have the same tokens as before."""
        size = self.codec.token_group
        groups = order.unflatten(1, (-1, size))  # [G, n, size]
        first = groups[..., 0]
        stays = (groups == first[..., None] + torch.arange(size)).all(2) & (first % size == 0) & (first < self.encoded)
        for name, part in parts.items():
            by_token = self._entries(name, size) > 1
            keep = stays.repeat_interleave(size, 1) if by_token else stays
            source = order if by_token else first // size
            source = source.clamp(max=self.parts[name].shape[2] - 1)[None, ..., None].expand(part.shape)
            parts[name] = torch.where(keep[None, ..., None], self.parts[name].gather(2, source), part)

    def _store(self, parts: dict[str, Tensor], num_tokens: int) -> None:
        self.parts = {
            name: torch.cat([self.parts[name], part], dim=2) if self.encoded else part for name, part in parts.items()
        }
        self.encoded += num_tokens


def order_of(stays: Tensor, encoded: int, target: int, size: int) -> Tensor:
    """Places of the tokens that stay, in an order that leaves as many groups as possible as they are.

    The groups that lose the fewest tokens remain. The oldest of the other tokens fill their gaps, so that recent tokens
    remain floats.

    stays    [n] bool: whether the token of a place stays
    encoded  places in groups, a multiple of `size`
    target   the same afterwards, at most the tokens that stay
    returns  [m] int64
    """
    places = torch.arange(len(stays))
    groups = places[:encoded].view(-1, size)
    is_chosen = torch.zeros(len(groups), dtype=torch.bool)
    is_chosen[stays[groups].sum(1).argsort(descending=True, stable=True)[: target // size]] = True
    front = groups[is_chosen].flatten()
    others = torch.cat([groups[~is_chosen].flatten(), places[encoded:]])
    others = others[stays[others]]
    gaps = ~stays[front]
    num_gaps = int(gaps.sum())
    front[gaps] = others[:num_gaps]
    return torch.cat([front, others[num_gaps:]])


def held_bytes(
    fmt: KVFormat, num_tokens: int, num_heads: int, widths: tuple[int, int], *, is_bound: bool = False
) -> float:
    """Bytes of the keys and values of `num_tokens` tokens in one layer, those of floats among them.

    widths  of a head's key and value
    is_bound  whether to count the most floats that there may be: an upper bound if each head holds `num_tokens` tokens
              or fewer, or if heads hold different numbers and this is their mean
    """
    total = 0.0
    for codec, width in zip((fmt.keys, fmt.values), widths, strict=True):
        size = codec.token_group
        encoded = fmt.num_encoded(num_tokens) if fmt.residual else num_tokens // size * size
        if is_bound:  # no head has more floats
            encoded = max(0, num_tokens - (fmt.residual + fmt.token_group if fmt.residual else size) + 1)
        float_bytes = num_heads * width * (2 if fmt.residual else 4)
        total += encoded * codec.bytes_per_token(num_heads, width) + (num_tokens - encoded) * float_bytes
    return total
