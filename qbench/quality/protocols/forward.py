"""Forward passes for several scorings at once: equal windows run once, windows of one length together.

The logits of a pass are computed in pieces, since a window's logits over a large vocabulary take more memory than all
else: 1 GB for 1,024 tokens of 262,144 words.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.quality.protocols.perplexity import few_rows
from qbench.quality.protocols.scoring import Scoring

Model = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V] float32
BATCH_LOGITS_BYTES = 128 << 20  # logits of a batch: large enough to feed two cores, small compared with any model
MAX_BATCH = 8
# Logits of a piece: 64 rows of 262,144 words, so that every kernel takes its path of many tokens.
PIECE_BYTES = 64 << 20
# Copies in float64 of a part of a piece: the logits of each model, and the weights of one.
FLOAT64_COPIES = {1: 2, 2: 3}


@dataclass(frozen=True, slots=True)
class Batch:
    """Distinct token rows, and who scores them."""

    tokens: Tensor  # [B, T] int64; shorter rows end in zeros, which no earlier position sees
    uses: list[list[tuple[int, int]]]  # for each row: (scoring, window) pairs


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a piece that belong to one window.

    scoring, window  numbers
    rows     of the piece
    targets  tokens of the window that the rows predict
    """

    scoring: int
    window: int
    rows: slice
    targets: slice


def batches(scorings: Sequence[Scoring], vocab_size: int) -> Iterator[Batch]:
    """Every window of every scoring in exactly one batch."""
    users: dict[bytes, list[tuple[int, int]]] = {}
    for p, scoring in enumerate(scorings):
        for w, window in enumerate(scoring.windows):
            users.setdefault(window.tokens.tobytes(), []).append((p, w))
    # Stable, longest first: the first batch needs the most memory, and windows of one length stay in the text's order.
    rows = sorted(((np.frombuffer(key, dtype=np.int64), uses) for key, uses in users.items()), key=lambda r: -len(r[0]))
    start = 0
    while start < len(rows):
        longest = len(rows[start][0])
        taken = rows[start : start + batch_size(longest, vocab_size)]
        tokens = np.zeros((len(taken), longest), dtype=np.int64)
        for row, (ids, _) in zip(tokens, taken, strict=True):
            row[: len(ids)] = ids
        yield Batch(torch.from_numpy(tokens), [uses for _, uses in taken])
        start += len(taken)


@dataclass(frozen=True, slots=True)
class Outputs:
    """One forward pass over tokens [B, T]. The logits of its B * T rows, one per token, are computed when asked for.

    rows     [B * T, K] outputs of the last layer, or [B * T, V] logits of a model whose head runs with the pass
    head     makes logits of rows
    """

    rows: Tensor
    head: Callable[[Tensor], Tensor] | None

    @classmethod
    def of(cls, model: Any, *given: Any) -> "Outputs":
        """given: tokens [B, T] and a cache as the model's call takes them"""
        if getattr(model, "has_separate_head", False):
            return cls(model.without_head()(*given).flatten(0, 1), model.logits)
        return cls(model(*given).flatten(0, 1), None)

    def logits(self, part: slice) -> Tensor:
        """[n, V] float32 of n rows"""
        rows = self.rows[part]
        return rows if self.head is None else self.head(rows)


def pieces(start: int, end: int, vocab_size: int) -> list[slice]:
    """Rows from `start` to `end` in the fewest pieces of equal length whose logits take PIECE_BYTES or less each."""
    num_pieces = -(-(end - start) // max(1, PIECE_BYTES // (4 * vocab_size)))
    ends = [start + (end - start) * piece // num_pieces for piece in range(num_pieces + 1)]
    return [slice(*each) for each in pairwise(ends)]


def scoring_bytes(num_rows: int, vocab_size: int, num_models: int) -> int:
    """Largest memory of a piece of logits among so many rows, and of its comparison in float64.

    num_models  1, or 2 with a reference
    """
    (piece, *_) = pieces(0, num_rows, vocab_size)
    few, *_ = few_rows(piece.stop, vocab_size)
    return vocab_size * (4 * num_models * piece.stop + 8 * FLOAT64_COPIES[num_models] * few.stop)


def scored_pieces(batch: Batch, scorings: Sequence[Scoring], vocab_size: int) -> Iterator[tuple[slice, list[Part]]]:
    """Every row of a batch that someone scores, in pieces, and the parts of windows that each piece has.

    Windows of a batch are scored in order, each from its first part to its last.
    """
    num_columns = batch.tokens.shape[1]
    wanted = [
        (row * num_columns + window.first, len(window.targets), p, w)
        for row, uses in enumerate(batch.uses)
        for p, w in uses
        for window in [scorings[p].windows[w]]
    ]
    first, last = min(start for start, *_ in wanted), max(start + count for start, count, *_ in wanted)
    for piece in pieces(first, last, vocab_size):
        parts = [
            Part(p, w, slice(begin - piece.start, end - piece.start), slice(begin - start, end - start))
            for start, count, p, w in wanted
            for begin, end in [(max(start, piece.start), min(start + count, piece.stop))]
            if begin < end
        ]
        if parts:
            yield piece, parts


def batch_size(window: int, vocab_size: int) -> int:
    """Windows a forward pass takes."""
    return max(1, min(MAX_BATCH, BATCH_LOGITS_BYTES // (4 * window * vocab_size)))
