"""MInference's vertical-slash pattern: columns and diagonals that the last queries attend to."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.policy import check_at_least
from qbench.prefill.block_lists import BLOCK
from qbench.prefill.pattern import PrefillPattern, Prompt, last_weights, pattern, slash_sums, vertical_sums

LAST_QUERIES = 64
FIRST_TOKENS, NEAR_TOKENS = 30, 100  # columns and diagonals that are always listed


@pattern("minference")
@dataclass(frozen=True)
class MInference(PrefillPattern):
    """Columns (vertical) and diagonals (slash) with the largest weights of the last 64 queries, in every head.

    vertical  number of columns; the first 30 tokens are always among them
    slash     number of diagonals; the 100 nearest tokens are always among them
    deviation  The paper finds one of three patterns for each head offline; here every head has this one, as nearly all
               heads of its published tables do. Columns and diagonals are rounded up to key blocks of 16 tokens per
               query block of 128, where its kernel has single columns and blocks of 64.
    source     Jiang et al. 2024, arXiv:2407.02490, algorithm 2; sizes as in its code
    """

    ladder = tuple(
        f"minference:vertical={vertical},slash={slash}"
        for vertical, slash in ((30, 100), (30, 200), (30, 400), (30, 800), (100, 750), (500, 700), (1000, 4096))
    )
    key_block: ClassVar[int] = 16

    vertical: int = 1000
    slash: int = 6096

    def __post_init__(self) -> None:
        check_at_least("vertical", self.vertical, FIRST_TOKENS)
        check_at_least("slash", self.slash, NEAR_TOKENS)

    def mask(self, prompt: Prompt) -> Tensor:
        weights = last_weights(prompt, LAST_QUERIES)
        columns, distances = vertical_sums(weights), slash_sums(weights)
        columns[:, :FIRST_TOKENS] = torch.inf
        distances[:, :NEAR_TOKENS] = torch.inf
        return self._columns(_largest(columns, self.vertical)) | self._diagonals(
            _largest(distances, self.slash), prompt.num_blocks
        )

    def _columns(self, chosen: Tensor) -> Tensor:
        """[H, 1, K]: key blocks that hold one of the chosen tokens [H, T]"""
        padded = torch.nn.functional.pad(chosen, (0, -chosen.shape[1] % self.key_block))
        return padded.unflatten(1, (-1, self.key_block)).any(2)[:, None]

    def _diagonals(self, chosen: Tensor, num_blocks: int) -> Tensor:
        """[H, N, K]: key blocks at one of the chosen distances [H, T] from one of the queries of a block"""
        heads, num_tokens = chosen.shape
        num_keys = -(-num_tokens // self.key_block)
        # From query block i to key block k, distances are from first - key_block + 1 to first + BLOCK - 1.
        first = torch.arange(num_blocks)[:, None] * BLOCK - torch.arange(num_keys) * self.key_block  # [N, K]
        counts = torch.nn.functional.pad(chosen.long().cumsum(1), (1, 0))  # [H, T + 1]: chosen below each distance
        begin = (first - self.key_block + 1).clamp(0, num_tokens)
        end = (first + BLOCK).clamp(0, num_tokens)
        return (counts[:, end.flatten()] > counts[:, begin.flatten()]).view(heads, num_blocks, num_keys)


def _largest(sums: Tensor, count: int) -> Tensor:
    """[H, T] bool: the largest `count` of each head; of equal ones the first"""
    chosen = sums.argsort(dim=1, descending=True, stable=True)[:, :count]
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(1, chosen, True)
