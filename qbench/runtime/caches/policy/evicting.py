"""`EvictingSequences`: the part that caches of a policy share, wherever their keys and values are."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from qbench.runtime.caches.policy.evictor import Evictor
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.step import Step


class EvictingSequences(Sequences):
    """Sequences whose tokens an `Evictor` keeps or drops; the other base class of a cache stores them.

    evictor  set by the maker of the cache
    """

    evictor: Evictor

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token seen, which fall as the text grows; of an empty cache, those of a stored token."""
        if not self.seq_len:
            return super().bytes_per_token
        return self.size_bytes / (self.batch * self.seq_len)

    @property
    def peak_bytes(self) -> int:
        return self.evictor.peak_bytes

    def held_positions(self, layer: int) -> list[list[list[int]]]:
        """Places in the text, ascending, of the tokens that each KV head of each sequence holds: [B][G][n]"""
        return self.evictor.held_positions(layer)

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        counts = np.full(self.batch, tokens.shape[1]) if step.counts is None else step.counts
        rows = list(tokens) if step.counts is None else step.tokens[0].split(counts.tolist())
        self.evictor.begin(rows, self.seq_lens, counts)
        return step

    def mark(self) -> None:
        self.evictor.mark(self.seq_lens)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        self.evictor.go_back(self.seq_lens, wanted)
        super().truncate(wanted)
