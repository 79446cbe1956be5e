"""LatentCache: of each token one row that all heads share, the latent of keys and values and the rotated key."""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from qbench.runtime.caches.cache import Cache, causal_attention, sees
from qbench.runtime.caches.sequences import check_seq_len
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.latent_codes import LATENT_CODES, LatentCodes
from quant.models import MlaConfig, ModelConfig
from quant.present import present


@dataclass(frozen=True, slots=True)
class LatentFormat:
    """How rows are kept.

    name   cpu_kernels' word for it
    dtype  of what is stored
    codes  of rows of bytes
    """

    name: str
    dtype: torch.dtype
    codes: LatentCodes | None = None

    def holds(self, mla: MlaConfig) -> bool:
        return self.codes is None or mla.kv_lora_rank % self.codes.group == 0

    def width(self, mla: MlaConfig) -> int:
        """Elements of a stored row."""
        return mla.latent_size if self.codes is None else self.codes.row_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim)

    def row_bytes(self, mla: MlaConfig) -> int:
        return self.width(mla) * self.dtype.itemsize

    def encode(self, rows: Tensor, rank: int) -> Tensor:
        """[..., latent_size] float32, of which `rank` are the latent -> [..., width]"""
        if self.codes is None:
            return rows.to(self.dtype)
        return self.codes.encode(*rows.tensor_split((rank,), -1))

    def decode(self, held: Tensor, rank: int) -> Tensor:
        """[..., width] -> [..., latent_size] float32"""
        return held.float() if self.codes is None else torch.cat(self.codes.decode(held, rank), -1)


# KV format -> rows; other formats are kept as every head's own keys and values. None: floats as they come
LATENT_FORMATS: dict[str | None, LatentFormat] = {
    None: LatentFormat("f32", torch.float32),
    "kv-f16": LatentFormat("f16", torch.float16),
    "kv-bf16": LatentFormat("bf16", torch.bfloat16),
    **{f"kv-{name}": LatentFormat(name, torch.uint8, codes) for name, codes in LATENT_CODES.items()},
}


def latent_format(config: ModelConfig, scheme: KVScheme | None) -> LatentFormat | None:
    """The format of this model's rows, or None where it keeps no rows or the format holds none of their size."""
    fmt = LATENT_FORMATS.get(None if scheme is None else scheme.format.name)
    return fmt if config.mla is not None and fmt is not None and fmt.holds(config.mla) else None


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences of a forward pass that hold as many tokens, and get as many.

    which   their places in the batch
    new     the columns of the forward pass that are theirs
    seq_len  tokens that each holds
    count   tokens that each gets
    """

    which: slice
    new: slice
    seq_len: int
    count: int


class LatentRows(Cache):
    """Nothing kept: the new tokens are the whole sequence, each row as its format would give it back."""

    def __init__(self, config: ModelConfig, fmt: LatentFormat, batch: int = 1) -> None:
        super().__init__(config, batch)
        self.format = fmt
        self.rank = present(config.mla).kv_lora_rank

    @property
    def bytes_per_token(self) -> float:
        return 0

    @property
    def size_bytes(self) -> int:
        return 0

    def spans(self, num_tokens: int) -> list[Span]:
        """Spans of [B, num_tokens] tokens; one per sequence of a varlen batch [1, num_tokens]."""
        if self.cu_seqlens is None:
            return [Span(slice(None), slice(None), self.seq_len, num_tokens)]
        return [
            Span(slice(b, b + 1), slice(start, end), int(self.seq_lens[b]), end - start)
            for b, (start, end) in enumerate(pairwise(self.cu_seqlens.tolist()))
        ]

    def extend(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        """Store the rows of the span's new tokens.

        rows     [B, T, latent_size] float32: the latent after its norm, and the rotated key
        returns  [B, S, latent_size] float32: as they are read, all its tokens that any new one sees
        """
        return self.format.decode(self.format.encode(self._seen(layer, rows, span), self.rank), self.rank)

    def _seen(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        """Of the rows of all tokens those that any new one sees: no token before the first one's window."""
        window = self.rules[layer].window
        return rows[:, -(window + span.count - 1) :] if window else rows

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor | None, positions: Tensor) -> Tensor:
        """Latent attention as one kv head whose values are the first channels of its keys.

        q        [B, H, T, latent_size] float32, with the up-projection of keys absorbed
        k        [B, 1, T, latent_size] float32: the new rows; v is not looked at
        returns  [B, H, T, kv_lora_rank] float32
        """
        spans = self.spans(k.shape[2])
        parts = [self.attend_joined(layer, q[:, :, span.new], k[:, 0, span.new], span) for span in spans]
        return torch.cat(parts, 2)

    def attend_joined(self, layer: int, q: Tensor, rows: Tensor, span: Span) -> Tensor:
        """`attend` of the span: q [B, H, T, latent_size], rows [B, T, latent_size] -> [B, H, T, kv_lora_rank]"""
        rows = self.extend(layer, rows, span)[:, None]  # [B, 1, S, K]
        return causal_attention(q, rows, rows[..., : self.rank], self.rules[layer])

    def attend_parts(self, layer: int, kept: Tensor, turned: Tensor, rows: Tensor, span: Span) -> Tensor:
        """`attend_joined` of queries in two parts, their scores added.

        kept     [B, H, T, kv_lora_rank], turned [B, H, T, qk_rope_head_dim]
        """
        rows = self.extend(layer, rows, span)[:, None]  # [B, 1, S, K]
        latents = rows[..., : self.rank]
        scores = kept @ latents.transpose(2, 3) + turned @ rows[..., self.rank :].transpose(2, 3)  # [B, H, T, S]
        unseen = ~sees(scores.shape[2], scores.shape[3], self.rules[layer].window, scores.device)
        return (scores * self.rules[layer].scale).masked_fill(unseen, -torch.inf).softmax(-1) @ latents


class HeldLatents(LatentRows):
    """Rows that are kept: where, says the class.

    mode     the name of a way to attend that is always taken, or None: whichever is measured to be fastest
    """

    def __init__(self, config: ModelConfig, fmt: LatentFormat, batch: int = 1, mode: str | None = None) -> None:
        super().__init__(config, fmt, batch)
        self.mode = mode

    def extend(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        self.store(layer, rows, span)
        return self.format.decode(self._seen(layer, self.read(layer, span), span), self.rank)

    @abstractmethod
    def store(self, layer: int, rows: Tensor, span: Span) -> None:
        """Keep the rows [B, T, latent_size] float32 of the span's new tokens."""

    @abstractmethod
    def read(self, layer: int, span: Span) -> Tensor:
        """As they are stored, the last tokens of the span: at least those that its new ones see, [B, S, width]"""


class LatentCache(HeldLatents):
    """Rows of every token, in order; capacity grows as needed, up to the model's context.

    raises   InputError for impossible sizes
    """

    def __init__(
        self, config: ModelConfig, fmt: LatentFormat, batch: int = 1, capacity: int = 256, mode: str | None = None
    ) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, fmt, batch, mode)
        mla = present(config.mla)
        self.row_bytes = fmt.row_bytes(mla)
        shape = (batch, min(capacity, self.max_seq_len), fmt.width(mla))
        self.held = [torch.empty(shape, dtype=fmt.dtype) for _ in range(config.num_layers)]  # [B, C, width] each

    @property
    def capacity(self) -> int:
        return self.held[0].shape[1]

    @property
    def bytes_per_token(self) -> int:
        return len(self.held) * self.row_bytes

    @property
    def size_bytes(self) -> int:
        return sum(held.nbytes for held in self.held)

    def store(self, layer: int, rows: Tensor, span: Span) -> None:
        end = span.seq_len + span.count
        self.reserve(layer, end)
        self.held[layer][span.which, span.seq_len : end] = self.format.encode(rows, self.rank)

    def read(self, layer: int, span: Span) -> Tensor:
        return self.held[layer][span.which, : span.seq_len + span.count]

    def reserve(self, layer: int, seq_len: int) -> None:
        """Room for sequences of so many tokens."""
        held = self.held[layer]
        if seq_len <= held.shape[1]:
            return
        check_seq_len(seq_len, self.max_seq_len)
        capacity = min(
            max(seq_len, 2 * held.shape[1]), self.max_seq_len
        )  # doubling: each token is copied once on average
        grown = held.new_empty(held.shape[0], capacity, held.shape[2])
        grown[:, : held.shape[1]] = held  # of a varlen batch some have their new tokens already
        self.held[layer] = grown
