"""Forward passes for several scorings at once: equal windows run once, windows of one length together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qbench.quality.protocols.scoring import Scoring

Model = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V] float32
BATCH_LOGITS_BYTES = 128 << 20  # logits of a batch: large enough to feed two cores, small compared with any model
MAX_BATCH = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Distinct token rows, and who scores them."""

    tokens: Tensor  # [B, T] int64; shorter rows end in zeros, which no earlier position sees
    uses: list[list[tuple[int, int]]]  # for each row: (scoring, window) pairs


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


def batch_size(window: int, vocab_size: int) -> int:
    """Windows a forward pass takes."""
    return max(1, min(MAX_BATCH, BATCH_LOGITS_BYTES // (4 * window * vocab_size)))
