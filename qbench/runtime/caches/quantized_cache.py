"""QuantizedCache: keys and values as the bytes of a KV format, decoded where they are attended to."""

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.cache import NoCache, TorchCache, causal_attention
from qbench.runtime.caches.sequences import check_seq_len
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.codec import Codec
from quant.models import ModelConfig


class RoundTripCache(NoCache):
    """Nothing kept: the new tokens are the whole sequence, read as the format would give them back.

    Where a format encodes several tokens together, a query sees its own group's keys already encoded, which in
    decoding it sees only once the group is full: quality is measured a little on the dark side.
    """

    def __init__(self, config: ModelConfig, scheme: KVScheme, batch: int = 1) -> None:
        super().__init__(config, batch)
        self.scheme = scheme

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k_scale, v_scale = layer_scales(self.scheme, layer)
        keys = self.scheme.format.keys.round_trip(k, k_scale)
        values = self.scheme.format.values.round_trip(v, v_scale)
        return causal_attention(q, keys, values, self.rules[layer])


class QuantizedCache(TorchCache):
    """Every token's keys and values in the scheme's format; new ones pass through it before they are attended to.

    Decodes all of a layer at each step, in torch: right in what it computes and in the bytes it keeps, not fast.
    """

    one_width = False

    def __init__(self, config: ModelConfig, scheme: KVScheme, batch: int = 1, capacity: int = 256) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, batch)
        fmt = scheme.format
        fmt.keys.check(config.head_dim)
        fmt.values.check(config.value_dim)
        scales = [layer_scales(scheme, layer) for layer in range(config.num_layers)]
        self.keys = [[_Side(fmt.keys, k_scale, capacity) for _ in range(batch)] for k_scale, _ in scales]
        self.values = [[_Side(fmt.values, v_scale, capacity) for _ in range(batch)] for _, v_scale in scales]
        per_layer = fmt.bytes_per_token(config.num_kv_heads, config.head_dim, config.value_dim)
        self._bytes_per_token = per_layer * config.num_layers

    @property
    def bytes_per_token(self) -> float:
        return self._bytes_per_token

    @property
    def size_bytes(self) -> int:
        """Bytes held for tokens that are there or expected."""
        return sum(side.size_bytes for layer in (*self.keys, *self.values) for side in layer)

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        check_seq_len(seq_len + k.shape[2], self.max_seq_len)
        keys = _extend(self.keys[layer][which], k)
        return causal_attention(q, keys, _extend(self.values[layer][which], v), self.rules[layer])

    def truncate(self, seq_len: int | np.ndarray) -> None:
        """Forget all tokens from `seq_len` on. Tokens of a group that is cut come back as they were decoded."""
        super().truncate(seq_len)
        for layer in (*self.keys, *self.values):
            for side, kept in zip(layer, self.seq_lens.tolist(), strict=True):
                side.truncate(kept)


def _extend(sides: "list[_Side]", x: Tensor) -> Tensor:
    """x [B, G, T, D] appended, a sequence to a side -> all tokens of each, [B, G, S, D]"""
    return torch.cat([side.extend(row) for side, row in zip(sides, x.split(1), strict=True)])


class _Side:
    """Keys or values of one layer of one sequence: encoded groups of tokens, and those behind the last as floats."""

    def __init__(self, codec: Codec, scale: Tensor | None, capacity: int) -> None:
        self.codec = codec
        self.scale = scale
        self.capacity = capacity
        self.parts: dict[str, Tensor] = {}  # [1, G or 1, tokens or groups, P] each, room for `capacity` tokens
        self.encoded = 0  # tokens in `parts`
        self.tail: Tensor | None = None  # [1, G, fewer than token_group, D] float32

    @property
    def size_bytes(self) -> int:
        tail = 0 if self.tail is None else self.tail.nbytes
        return tail + sum(part.nbytes for part in self.parts.values())

    def extend(self, x: Tensor) -> Tensor:
        """Append x [1, G, T, D] to the tokens held; returns all of them as they are read, [1, G, S, D]."""
        if self.tail is not None:
            x = torch.cat([self.tail, x], dim=2)
        group = self.codec.token_group
        whole = x.shape[2] // group * group
        if whole:
            self._store(self.codec.encode(x[:, :, :whole], self.scale), whole)
        self.tail = x[:, :, whole:].clone() if whole < x.shape[2] else None
        held = [] if not self.encoded else [self.codec.decode(self._held(self.encoded), self.scale)]
        return torch.cat([*held, self.tail], dim=2) if self.tail is not None else held[0]

    def truncate(self, seq_len: int) -> None:
        group = self.codec.token_group
        if seq_len >= self.encoded:
            keep = seq_len - self.encoded
            self.tail = self.tail[:, :, :keep] if self.tail is not None and keep else None
            return
        whole = seq_len // group * group
        cut = self.codec.decode(self._held(self.encoded), self.scale)[:, :, whole:seq_len] if seq_len > whole else None
        self.encoded, self.tail = whole, cut

    def _held(self, num_tokens: int) -> dict[str, Tensor]:
        return {name: part[:, :, : self._entries(name, num_tokens)] for name, part in self.parts.items()}

    def _entries(self, name: str, num_tokens: int) -> int:
        """Entries along a part's token axis: one a token for codes, one a group of tokens for what they share."""
        return num_tokens if name == "codes" else num_tokens // self.codec.token_group

    def _store(self, parts: dict[str, Tensor], num_tokens: int) -> None:
        end = self.encoded + num_tokens
        group = self.codec.token_group
        if end > self.capacity or not self.parts:
            self.capacity = -(-max(self.capacity, end, 2 * self.encoded) // group) * group
            grown = {
                name: part.new_empty(*part.shape[:2], self._entries(name, self.capacity), part.shape[3])
                for name, part in parts.items()
            }
            for name, part in self._held(self.encoded).items():
                grown[name][:, :, : part.shape[2]] = part
            self.parts = grown
        for name, part in parts.items():
            self.parts[name][:, :, self._entries(name, self.encoded) : self._entries(name, end)] = part
        self.encoded = end


def layer_scales(scheme: KVScheme, layer: int) -> tuple[Tensor | None, Tensor | None]:
    """k_scale and v_scale [G or 1] of one layer; None where the format finds its scales by itself."""
    if scheme.k_scale is None or scheme.v_scale is None:
        return None, None
    return torch.from_numpy(scheme.k_scale[layer]), torch.from_numpy(scheme.v_scale[layer])
