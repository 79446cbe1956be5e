"""QuantizedCache: keys and values as the bytes of a KV format, decoded where they are attended to."""

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.cache import NoCache, TorchCache, causal_attention
from qbench.runtime.caches.sequences import check_seq_len
from quant.errors import InputError
from quant.kv import KVFormat, KVScheme
from quant.kv.codec import Codec
from quant.models import ModelConfig


class RoundTripCache(NoCache):
    """Nothing kept: the new tokens are the whole sequence, read as the format would give them back.

    With a residual, each query sees the tokens encoded that it would see encoded in decoding. Without one, a query
    sees the keys of its own group of tokens encoded, which in decoding it sees only once the group is full: quality is
    measured a little on the dark side.
    """

    def __init__(self, config: ModelConfig, scheme: KVScheme, batch: int = 1) -> None:
        super().__init__(config, batch)
        self.scheme = scheme

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k_scale, v_scale = layer_scales(self.scheme, layer)
        fmt, rule = self.scheme.format, self.rules[layer]
        if fmt.residual:
            k, v = k.half().float(), v.half().float()
        keys, values = fmt.keys.round_trip(k, k_scale), fmt.values.round_trip(v, v_scale)
        if not fmt.residual:
            return causal_attention(q, keys, values, rule)
        outputs = []
        for start, end in fmt.uniform_runs(0, q.shape[2]):
            encoded = fmt.num_encoded(end)
            seen_keys = torch.cat([keys[:, :, :encoded], k[:, :, encoded:end]], dim=2)
            seen_values = torch.cat([values[:, :, :encoded], v[:, :, encoded:end]], dim=2)
            outputs.append(causal_attention(q[:, :, start:end], seen_keys, seen_values, rule))
        return torch.cat(outputs, dim=2)


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
        self.format = fmt
        scales = [layer_scales(scheme, layer) for layer in range(config.num_layers)]
        self.keys = [[_Side(fmt, fmt.keys, k_scale, capacity) for _ in range(batch)] for k_scale, _ in scales]
        self.values = [[_Side(fmt, fmt.values, v_scale, capacity) for _ in range(batch)] for _, v_scale in scales]
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
        end = seq_len + k.shape[2]
        check_seq_len(end, self.max_seq_len)
        sides = (self.keys[layer][which], self.values[layer][which])
        outputs = []
        for run in self.format.uniform_runs(seq_len, end):
            new = slice(run[0] - seq_len, run[1] - seq_len)
            keys, values = (_extend(side, x[:, :, new]) for side, x in zip(sides, (k, v), strict=True))
            outputs.append(causal_attention(q[:, :, new], keys, values, self.rules[layer]))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        """Forget all tokens from `seq_len` on. Encoded tokens that become floats again are floats as decoded."""
        super().truncate(seq_len)
        for layer in (*self.keys, *self.values):
            for side, kept in zip(layer, self.seq_lens.tolist(), strict=True):
                side.truncate(kept)


def _extend(sides: "list[_Side]", x: Tensor) -> Tensor:
    """x [B, G, T, D] appended, a sequence to a side -> all tokens of each, [B, G, S, D]"""
    return torch.cat([side.extend(row) for side, row in zip(sides, x.split(1), strict=True)])


class _Side:
    """Keys or values of one layer of one sequence: encoded groups of tokens, and the tokens after them as floats."""

    def __init__(self, fmt: KVFormat, codec: Codec, scale: Tensor | None, capacity: int) -> None:
        self.format = fmt
        self.codec = codec
        self.scale = scale
        self.capacity = fmt.num_encoded(capacity)
        self.parts: dict[str, Tensor] = {}  # [1, G or 1, tokens or groups, P] each, room for `capacity` tokens
        self.encoded = 0  # tokens in `parts`
        self.tail: Tensor | None = None  # [1, G, tokens that are not encoded, D] float32, with a residual float16

    @property
    def size_bytes(self) -> int:
        tail = 0 if self.tail is None else self.tail.nbytes
        return tail + sum(part.nbytes for part in self.parts.values())

    def extend(self, x: Tensor) -> Tensor:
        """Append x [1, G, T, D] to the tokens held; returns all of them as they are read, [1, G, S, D]."""
        x = self._as_tail(x)
        if self.tail is not None:
            x = torch.cat([self.tail, x], dim=2)
        new = self._num_encoded(self.encoded + x.shape[2]) - self.encoded
        if new:
            self._store(self.codec.encode(x[:, :, :new].float(), self.scale), new)
        self.tail = x[:, :, new:].clone() if new < x.shape[2] else None
        held = [] if not self.encoded else [self.codec.decode(self._held(self.encoded), self.scale)]
        return torch.cat([*held, self.tail.float()], dim=2) if self.tail is not None else held[0]

    def truncate(self, seq_len: int) -> None:
        encoded = self._num_encoded(seq_len)
        floats = [] if self.tail is None else [self.tail]
        if encoded < self.encoded:
            decoded = self.codec.decode(self._held(self.encoded), self.scale)
            floats.insert(0, self._as_tail(decoded[:, :, encoded:]))
        self.encoded = encoded
        self.tail = torch.cat(floats, dim=2)[:, :, : seq_len - encoded] if seq_len > encoded else None

    def _num_encoded(self, num_tokens: int) -> int:
        if self.format.residual:
            return self.format.num_encoded(num_tokens)
        return num_tokens // self.codec.token_group * self.codec.token_group

    def _as_tail(self, x: Tensor) -> Tensor:
        return x.half() if self.format.residual else x

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
