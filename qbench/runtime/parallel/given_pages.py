"""GivenPages: a part of the sequences of a cache or pool, whose pages are there, and their tokens as rows."""

from collections.abc import Sequence

import numpy as np

from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.places.places import Places


class GivenPages(Places):
    """Pages that were chosen and reserved before.

    source   a pool, or the places of all sequences of a cache
    """

    def __init__(self, source: PagePool | Places, block_table: np.ndarray) -> None:
        self.layers, self.memories = source.layers, source.memories
        self.block_table = np.ascontiguousarray(block_table, np.int32)
        self.batch = len(block_table)

    @property
    def size_bytes(self) -> int:
        return 0  # the source's

    def begin(self, counts: Sequence[int]) -> None:
        """The pages are there."""

    def reserve(self, layer: int, num_slots: int) -> None:
        """The pages are there."""


def padded(tokens: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Tokens [N] of sequences one after another -> [B, T], padded on the right"""
    rows = np.zeros((len(counts), counts.max()), np.int64)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = tokens
    return rows
