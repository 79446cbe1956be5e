"""Sequences of many lengths that come, grow by a token at a time and go, in a pool of pages."""

from dataclasses import dataclass

import numpy as np

from qbench.runtime.caches.places.pages import PagedSequence, PagePool

SHORTEST, LONGEST = 64, 2048  # tokens of a sequence at its end
AT_ONCE, STEPS = 32, 3000


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over all steps: of tokens that are held, of those that the pages have room for, and of fixed room for the
    longest sequence.
    """

    tokens: int
    paged: int
    fixed: int
    num_sequences: int

    @property
    def waste(self) -> float:
        """Share of the held pages that no token fills."""
        return 1 - self.tokens / self.paged

    @property
    def fixed_waste(self) -> float:
        return 1 - self.tokens / self.fixed


def run_mixed_workload(pool: PagePool, seed: int = 0) -> Usage:
    """AT_ONCE sequences at any time, each a prompt of a quarter of its length and then a token per step."""
    rng = np.random.default_rng(seed)
    running: list[tuple[PagedSequence, int]] = []
    tokens = paged = fixed = started = 0
    for _ in range(STEPS):
        while len(running) < AT_ONCE:
            seq_len = int(np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST))))
            sequence = PagedSequence(pool)
            _grow(sequence, seq_len // 4)
            running.append((sequence, seq_len))
            started += 1
        for sequence, _ in running:
            _grow(sequence, 1)
        tokens += sum(sequence.seq_len for sequence, _ in running)
        paged += (pool.num_pages - pool.num_free) * pool.page_size
        fixed += AT_ONCE * LONGEST
        for sequence, seq_len in running:
            if sequence.seq_len >= seq_len:
                sequence.release()
        running = [(sequence, seq_len) for sequence, seq_len in running if sequence.seq_len]
    for sequence, _ in running:
        sequence.release()
    return Usage(tokens, paged, fixed, started)


def _grow(sequence: PagedSequence, num_tokens: int) -> None:
    sequence.reserve(num_tokens)
    sequence.seq_len += num_tokens
