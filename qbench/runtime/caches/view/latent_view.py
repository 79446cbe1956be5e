"""`LatentView`: one layer of a cache of latents in a forward pass, as latent attention works on it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.causal_attention import causal_attention, sees
from qbench.runtime.attention.observed_weights import joint_weights, observed_weights
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.storage.latent_storage import LatentStorage
from quant.models import AttentionRule


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences of a forward pass that use as many slots, and get as many tokens.

    which   their places in the batch
    new     the columns of the forward pass that are theirs
    end     slots that each uses, with the new tokens
    count   tokens that each gets
    """

    which: slice
    new: slice
    end: int
    count: int


def spans_of(ends: np.ndarray, num_tokens: int, cu_seqlens: np.ndarray | None) -> list[Span]:
    """One span of [B, num_tokens] tokens if all sequences use as many slots; else one per sequence.

    ends        [B] int64: slots in use with the new tokens
    cu_seqlens  of a varlen batch [1, num_tokens]
    returns     several spans of a batch that is not varlen have the columns of [1, B * num_tokens] tokens
    """
    if cu_seqlens is None:
        if (ends == ends[0]).all():
            return [Span(slice(None), slice(None), int(ends[0]), num_tokens)]
        cu_seqlens = np.arange(len(ends) + 1) * num_tokens
    return [
        Span(slice(b, b + 1), slice(start, stop), int(ends[b]), stop - start)
        for b, (start, stop) in enumerate(pairwise(cu_seqlens.tolist()))
    ]


def each_token(
    block_table: np.ndarray, ends: np.ndarray, num_tokens: int, cu_seqlens: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The M new tokens as cpu_kernels take them: each is a sequence that has its sequence's pages and ends with it.

    block_table  [B, pages] int32
    ends         [B] int64: slots in use with all new tokens
    num_tokens, cu_seqlens  as for `spans_of`
    returns      block table [M, pages] and slots in use [M]
    """
    if cu_seqlens is None:
        if num_tokens == 1:
            return block_table, ends
        each = ends[:, None] - np.arange(num_tokens)[::-1]
        return np.repeat(block_table, num_tokens, axis=0), each.ravel()
    counts = np.diff(cu_seqlens)
    behind = np.repeat(cu_seqlens[1:], counts) - np.arange(cu_seqlens[-1]) - 1  # tokens of its sequence after it
    return np.repeat(block_table, counts, axis=0), np.repeat(ends, counts) - behind


class LatentView:
    """Nothing kept: the new tokens are the whole sequence, each row as its format would give it back.

    spans          all new tokens
    settles        whether a policy looks on
    reads_queries  whether it looks at `queries`
    queries        [B, H, T, D] float32 of the span that attends next: not rotated, the part to rotate first
    """

    settles = False
    reads_queries = False
    queries: Tensor | None = None

    def __init__(self, latents: Latents, rule: AttentionRule, spans: list[Span]) -> None:
        self.latents, self.rule, self.spans = latents, rule, spans

    def extend(self, rows: Tensor, span: Span) -> Tensor:
        """Store the rows of the span's new tokens.

        rows     [B, T, latent_size] float32: the latent after its norm, and the rotated key
        returns  [B, S, latent_size] float32: as they are read, all its tokens that any new one sees
        """
        rank, fmt = self.latents.rank, self.latents.format
        return fmt.decode(fmt.encode(self._seen(rows, span), rank), rank)

    def _seen(self, rows: Tensor, span: Span) -> Tensor:
        """The rows that any new token sees: no row before the window of the first one."""
        window = self.rule.window
        return rows[:, -(window + span.count - 1) :] if window else rows

    def attend_joined(self, q: Tensor, rows: Tensor, span: Span) -> Tensor:
        """Attention of the span's new tokens over rows: one KV head, whose values are the first channels of its keys.

        q        [B, H, T, latent_size] float32, with the up-projection of keys absorbed
        rows     [B, T, latent_size] float32: the new ones
        returns  [B, H, T, kv_lora_rank] float32
        """
        keys = self.extend(rows, span)[:, None]  # [B, 1, S, latent_size]
        return causal_attention(q, keys, keys[..., : self.latents.rank], self.rule)

    def attend_parts(self, kept: Tensor, turned: Tensor, rows: Tensor, span: Span) -> Tensor:
        """`attend_joined` of queries in two parts, their scores added.

        kept     [B, H, T, kv_lora_rank], turned [B, H, T, qk_rope_head_dim]
        """
        keys = self.extend(rows, span)[:, None]  # [B, 1, S, latent_size]
        latents = keys[..., : self.latents.rank]
        scores = kept @ latents.transpose(2, 3) + turned @ keys[..., self.latents.rank :].transpose(2, 3)
        unseen = ~sees(scores.shape[2], scores.shape[3], self.rule.window, scores.device)  # [T, S]
        return (scores * self.rule.scale).masked_fill(unseen, -torch.inf).softmax(-1) @ latents

    def met(self, q: Tensor, keys: Tensor, span: Span) -> None:
        """Queries [B, H, T, D] of the span have attended to each head's own keys [B, H, S, D]."""


Weights = Tensor | Iterator[Tensor] | None  # as `CachePolicy.update` or `update_each` takes them, if either does
Settle = Callable[[int, Weights, Tensor | None], None]  # sequence, its weights, queries as `LatentView.queries`


class StoredLatents(LatentView):
    """Rows that are kept.

    storage      with room for the new tokens
    block_table  [B, pages] int32
    each         block table [M, pages] and slots in use [M], for cpu_kernels, to which each of the M new tokens is a
                 sequence of its own that ends with it
    slots        [B] int64: slot that the only new token of each sequence takes; None: the last one
    observe      weights that `settle` wants, if any
    settle       to be called for each sequence that has attended; None: no policy looks on
    """

    def __init__(
        self,
        latents: Latents,
        rule: AttentionRule,
        spans: list[Span],
        storage: LatentStorage,
        block_table: np.ndarray,
        each: Callable[[], tuple[np.ndarray, np.ndarray]],
        slots: np.ndarray | None = None,
        observe: Observe | None = None,
        settle: Settle | None = None,
        *,
        reads_queries: bool = False,
    ) -> None:
        super().__init__(latents, rule, spans)
        self.storage, self.block_table, self.each = storage, block_table, each
        self.slots, self.observe, self.reads_queries = slots, observe, reads_queries
        self._settle = settle
        self.settles = settle is not None

    def extend(self, rows: Tensor, span: Span) -> Tensor:
        past = self._append(rows, span)
        return self._seen(self.storage.read(past)[0][:, 0], span)

    def _append(self, rows: Tensor, span: Span) -> Past:
        table = self.block_table[span.which]
        past = Past(table, np.full(len(table), span.end))
        slots = None if self.slots is None else torch.from_numpy(self.slots[span.which])[:, None]
        self.storage.append(rows[:, None], None, past, slots)
        return past

    def attend_joined(self, q: Tensor, rows: Tensor, span: Span) -> Tensor:
        past, observe = self._append(rows, span), self.observe
        if observe is not None and observe.each and q.shape[2] > 1:
            out, _ = self.storage.attend(q, past, self.rule)
            self._weigh(q, past, span)
            return out
        out, weights = self.storage.attend(q, past, self.rule, observe)
        if weights is None or isinstance(weights, Tensor):
            self.done(span, lambda one: None if weights is None else weights[one])
        else:
            (block,) = weights  # of the only query
            self.done(span, lambda one: iter([block[one]]))
        return out

    def attend_parts(self, kept: Tensor, turned: Tensor, rows: Tensor, span: Span) -> Tensor:
        if self.latents.in_kernels:
            return self.attend_joined(torch.cat((kept, turned), -1), rows, span)
        out = super().attend_parts(kept, turned, rows, span)
        if self._settle is not None:
            table = self.block_table[span.which]
            self._weigh(torch.cat((kept, turned), -1), Past(table, np.full(len(table), span.end)), span)
        return out

    def _weigh(self, q: Tensor, past: Past, span: Span) -> None:
        """`done`, with the weights of queries [B, H, T, latent_size] that meet the rows"""
        keys, _ = self.storage.read(past)
        self.done(span, lambda one: observed_weights(q[one], keys[one], self.rule, self.observe))

    def met(self, q: Tensor, keys: Tensor, span: Span) -> None:
        if self._settle is not None:
            self.done(span, lambda one: joint_weights(q[one], keys[one], self.rule, self.observe))

    def done(self, span: Span, weights: Callable[[slice], Weights]) -> None:
        """The sequences of the span have attended.

        weights   sequence of the span, as a slice -> its weights [1, 1, S], or [1, 1, t, S] for t queries each
        """
        if self._settle is None:
            return
        for row, b in enumerate(range(len(self.block_table))[span.which]):
            one = slice(row, row + 1)
            self._settle(b, weights(one), None if self.queries is None else self.queries[one])


class TokenWeights:
    """Weights that the tokens of a span give each slot, summed up or kept as `Observe` asks for it."""

    def __init__(self, observe: Observe, span: Span, num_sequences: int, num_heads: int) -> None:
        self.observe, self.count, self.num_heads = observe, span.count, num_heads
        self.sums = torch.zeros(num_sequences, 1, span.end)
        self.blocks: list[list[Tensor]] = [[] for _ in range(num_sequences)]
        self._next = 0

    def add(self, mass: Tensor) -> None:
        """mass [m, S] of the next tokens of the span, those of one sequence after those of another"""
        tokens = torch.arange(self._next, self._next + len(mass))
        self._next += len(mass)
        is_observed = tokens % self.count >= self.count - (self.observe.queries or self.count)
        sequences, mass = tokens[is_observed] // self.count, mass[is_observed]
        if not self.observe.each:
            self.sums[:, 0].index_add_(0, sequences, mass)
            return
        for b in sequences.unique().tolist():
            self.blocks[b].append(mass[sequences == b][None, None] / self.num_heads)

    def of(self, one: slice) -> Tensor | Iterator[Tensor]:
        """[1, 1, S] of a sequence, or [1, 1, t, S] each"""
        return iter(self.blocks[one.start]) if self.observe.each else self.sums[one]
