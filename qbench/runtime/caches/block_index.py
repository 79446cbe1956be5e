"""`BlockIndex`: summaries of the blocks of one sequence in one layer, which a retrieval policy chooses by."""

import torch
from torch import Tensor

from qbench.policies.retrieval import Scores


class BlockIndex(Scores):
    """One row per complete block, in text order.

    num_blocks  rows that count
    call        vectors [Q, H, C] float32 -> [Q, G, num_blocks] float32: products, summed over the heads of a group
    """

    def __init__(self, num_kv_heads: int, size: int, room: int) -> None:
        self.num_blocks = 0
        self._rows = torch.zeros(room, num_kv_heads, size, dtype=torch.float16)

    @property
    def size_bytes(self) -> int:
        return self._rows.nbytes

    @property
    def row_bytes(self) -> int:
        _, num_kv_heads, size = self._rows.shape
        return num_kv_heads * size * self._rows.itemsize

    @property
    def rows(self) -> Tensor:
        """[num_blocks, G, C] float16"""
        return self._rows[: self.num_blocks]

    def append(self, rows: Tensor) -> None:
        """rows [n, G, C] float16 of the next blocks"""
        end = self.num_blocks + len(rows)
        if end > len(self._rows):
            grown = self._rows.new_zeros(max(end, 2 * len(self._rows)), *self._rows.shape[1:])
            grown[: self.num_blocks] = self.rows
            self._rows = grown
        self._rows[self.num_blocks : end] = rows
        self.num_blocks = end

    def truncate(self, num_blocks: int) -> None:
        self.num_blocks = min(self.num_blocks, num_blocks)

    def __call__(self, vectors: Tensor) -> Tensor:
        rows = self.rows.float().transpose(0, 1)  # [G, n, C]
        of_groups = vectors.unflatten(1, (len(rows), -1)).sum(2)  # [Q, G, C]
        # Not a matrix product: its code may differ from row to row, so that equal blocks would get unequal scores.
        return torch.stack([(rows * vector[:, None]).sum(-1) for vector in of_groups])
