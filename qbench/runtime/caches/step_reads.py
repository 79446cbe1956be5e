"""`StepReads`: which blocks a decode step read in all layers, and which ones the next step is likely to read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qbench.policies.retrieval import ChoiceSizes

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
