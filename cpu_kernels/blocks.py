"""Blocks that a query reads: the definition of their scores, and of the choice."""

import numpy as np

from cpu_kernels._ext import best_blocks, score_blocks

__all__ = ["best_blocks", "best_blocks_ref", "score_blocks", "score_blocks_ref"]


def score_blocks_ref(rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The product of every row with the vector of its head: [Q, G, n] float64.

    rows     [G, n, C] float16
    vectors  [Q, G, C] float32
    """
    return np.einsum("gnc,qgc->qgn", rows.astype(np.float64), vectors.astype(np.float64))


def best_blocks_ref(scores: np.ndarray, limits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Places of the largest scores, ascending; of equal scores the first places: [Q, G, max(counts)] int64, then -1.

    scores          [Q, G, n] float32; NaN counts as infinity
    limits, counts  [Q] int64: of query q, counts[q] of the first limits[q]
    """
    best = np.full((*scores.shape[:2], counts.max(initial=0)), -1)
    for q, g in np.ndindex(best.shape[:2]):
        keys = np.where(np.isnan(scores[q, g]), np.inf, scores[q, g])[: limits[q]]
        best[q, g, : counts[q]] = sorted(sorted(range(len(keys)), key=lambda n: (-keys[n], n))[: counts[q]])
    return best
