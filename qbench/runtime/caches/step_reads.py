"""`StepReads`: the blocks that a decode step read. `TierTally`: counts of the blocks that came from the disk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qbench.policies.retrieval import ChoiceSizes


@dataclass(frozen=True, slots=True)
class TierReads:
    """Means over decode steps.

    blocks_loaded  blocks of all layers that came from the disk, those among them that were read ahead and not needed
    bytes_read     of these blocks
    hit_share      share of the needed blocks that were in memory
    """

    blocks_loaded: float
    bytes_read: float
    hit_share: float


class TierTally:
    """Counts all blocks, and again those of forward passes that bring one token.

    num_asked   blocks that attention needed
    num_loaded  blocks that came from the disk
    num_unused  blocks that were read ahead of a need that did not come
    """

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.num_asked = self.num_loaded = self.num_unused = 0
        self._seq_len = self._asked = self._loaded = self._unused = 0  # when the last forward pass ended
        self._steps = self._step_asked = self._step_loaded = self._step_unused = 0

    def advance(self, seq_len: int) -> None:
        """A forward pass has ended."""
        if seq_len == self._seq_len + 1:
            self._steps += 1
            self._step_asked += self.num_asked - self._asked
            self._step_loaded += self.num_loaded - self._loaded
            self._step_unused += self.num_unused - self._unused
        self.truncate(seq_len)

    def truncate(self, seq_len: int) -> None:
        """The sequence has so many tokens; blocks so far do not count for its next step."""
        self._seq_len, self._asked, self._loaded = seq_len, self.num_asked, self.num_loaded
        self._unused = self.num_unused

    @property
    def reads(self) -> TierReads | None:
        """None before the first step"""
        if not self._steps:
            return None
        per_step = (self._step_loaded + self._step_unused) / self._steps
        hits = 1 - self._step_loaded / self._step_asked if self._step_asked else 1.0
        return TierReads(per_step, per_step * self.block_bytes, hits)


# A step lacks 5.6 blocks (a layer chooses 18 of 450, smooth 0.9). With one block more than a layer chooses, 3.8 are on
# their way, and 2.9 reads are not used; without it 3.5 and 2.3, with two 4.0 and 3.4.
MORE_LIKELY = 1


def pages_of_blocks(blocks: np.ndarray, init_pages: int, block_pages: int) -> np.ndarray:
    """Pages of a sequence that hold blocks [..., n]"""
    pages = (init_pages + blocks * block_pages)[..., None] + np.arange(block_pages)
    return pages.reshape(*blocks.shape[:-1], -1)


def received_by_pages(mass: np.ndarray, init_pages: int, num_pages: int, page_size: int) -> np.ndarray:
    """Attention [..., num_pages] float64 of pages after the first ones; mass [..., G, S] of the tokens read."""
    far = mass[..., init_pages * page_size : (init_pages + num_pages) * page_size]
    return far.reshape(*far.shape[:-1], num_pages, page_size).sum((-3, -1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class StepReads:
    """A step of the only sequence; all layers choose as many blocks.

    sizes      of each layer
    chosen     [L, n] int64
    mass       [L, G, S] float32: attention that each token received, those of chosen blocks after the first ones
    smoothing  per layer the share, and the scores [1, n] before and after the step; None: no smoothing
    """

    sizes: ChoiceSizes
    chosen: np.ndarray
    mass: np.ndarray
    smoothing: Sequence[tuple[float, np.ndarray, np.ndarray]] | None

    @property
    def num_more(self) -> int:
        """Blocks more than n that are likely"""
        return 0 if self.smoothing is None else MORE_LIKELY

    @property
    def pages(self) -> np.ndarray:
        """Pages [L, n] of the chosen blocks"""
        return pages_of_blocks(self.chosen, self.sizes.init_pages, self.sizes.block_pages)

    @property
    def received(self) -> np.ndarray:
        """Attention [L, n] that these pages received"""
        num_pages = self.chosen.shape[1] * self.sizes.block_pages
        return received_by_pages(self.mass, self.sizes.init_pages, num_pages, self.sizes.page)

    @property
    def likely_pages(self) -> np.ndarray:
        """Pages [L, n] of `likely`"""
        return pages_of_blocks(self.likely, self.sizes.init_pages, self.sizes.block_pages)

    @property
    def likely(self) -> np.ndarray:
        """Blocks [L, n] that the next step may choose: scores go on as they went."""
        if self.smoothing is None:
            return self.chosen
        found, count = [], min(self.sizes.count + self.num_more, self.smoothing[0][2].shape[1])
        for share, before, after in self.smoothing:
            scores = after[0].copy()
            scores[: before.shape[1]] += share * (after[0, : before.shape[1]] - before[0])
            found.append(np.argpartition(scores, -count)[-count:])
        return np.stack(found)
