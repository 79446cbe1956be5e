"""`BlockIndex`: summaries of the blocks of one sequence in one layer, which a retrieval policy chooses by."""

import importlib

import numpy as np
import torch
from torch import Tensor

from qbench.policies.retrieval import BlockScores
from quant.extension import has_cpu_kernels

LANES = 16  # of cpu_kernels: summaries are a multiple


class BlockIndex(BlockScores):
    """One row per choice and complete block.

    num_blocks  rows of each choice that count
    bits        [A, room, C] uint16, as cpu_kernels take them
    last        scores that `smoothed` returned last, if any
    in_kernels  whether cpu_kernels scan them, if they can
    """

    def __init__(self, num_choices: int, size: int, *, in_kernels: bool) -> None:
        self.num_blocks, self.num_choices, self.size = 0, num_choices, size
        self.last: Tensor | None = None
        self._hold(torch.zeros(num_choices, 0, size, dtype=torch.float16))
        can = in_kernels and has_cpu_kernels() and size % LANES == 0
        self._kernels = importlib.import_module("cpu_kernels.blocks") if can else None

    @property
    def size_bytes(self) -> int:
        return self._rows.nbytes

    @property
    def block_bytes(self) -> int:
        num_choices, _, size = self._rows.shape
        return num_choices * size * self._rows.itemsize

    @property
    def in_kernels(self) -> bool:
        return self._kernels is not None

    @property
    def rows(self) -> Tensor:
        """[A, num_blocks, C] float16"""
        return self._rows[:, : self.num_blocks]

    def append(self, rows: Tensor) -> None:
        """rows [A, n, C] float16 of the next blocks"""
        end, room = self.num_blocks + rows.shape[1], self._rows.shape[1]
        if end > room:
            grown = self._rows.new_zeros(self.num_choices, max(end, 2 * room), rows.shape[2])
            grown[:, : self.num_blocks] = self.rows
            self._hold(grown)
        self._rows[:, self.num_blocks : end] = rows
        self.num_blocks = end

    def _hold(self, rows: Tensor) -> None:
        self._rows, self.bits = rows, rows.view(torch.uint16).numpy()

    def truncate(self, num_blocks: int) -> None:
        self.num_blocks = min(self.num_blocks, num_blocks)
        self.last = None if self.last is None else self.last[..., :num_blocks]

    def smoothed(self, scores: Tensor, share: float) -> Tensor:
        if self.last is not None:
            known = scores[..., : self.last.shape[2]]
            known.mul_(1 - share).add_(share * self.last)
        self.last = scores
        return scores

    def smoothing(self, share: float) -> tuple[float, np.ndarray, np.ndarray]:
        """The share, and the last scores [A, n] and those to come [A, num_blocks], for a kernel that does `smoothed`.

        The last scores are those to come from then on.
        """
        empty = torch.empty(1, self.num_choices, 0)
        last = empty if self.last is None else self.last
        self.last = torch.empty(1, self.num_choices, self.num_blocks)
        return share, last[0].contiguous().numpy(), self.last[0].numpy()

    def scores(self, vectors: Tensor) -> Tensor:
        if self._kernels is None:
            # Not a matrix product: its code may differ from row to row, so that equal blocks would get unequal scores.
            rows = self.rows.float()
            return torch.stack([(rows * vector[:, None]).sum(-1) for vector in vectors])
        out = torch.empty(len(vectors), self.num_choices, self.num_blocks)
        self._kernels.score_blocks(self.bits, self.num_blocks, vectors.contiguous().numpy(), out.numpy())
        return out

    def best(self, scores: Tensor, limits: np.ndarray, counts: np.ndarray) -> Tensor:
        out = torch.full((*scores.shape[:2], int(counts.max(initial=0))), -1)
        if self._kernels is not None:
            self._kernels.best_blocks(scores.numpy(), limits, counts, out.numpy())
            return out
        for row, of_query, limit, count in zip(out, scores, limits.tolist(), counts.tolist(), strict=True):
            order = of_query[:, :limit].argsort(dim=1, descending=True, stable=True)
            row[:, :count] = order[:, :count].sort(1).values
        return out
