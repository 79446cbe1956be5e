"""Star Attention: parts of the context that see themselves and the first part, then a query part that sees all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.policies import Budget
from qbench.policies.budget import Unit
from qbench.policies.policy import check_at_least
from qbench.prefill.block_lists import BLOCK, BlockLists, num_blocks
from qbench.prefill.pattern import PrefillPattern, Prompt, pattern
from quant.errors import InputError


@pattern("star")
@dataclass(frozen=True)
class Star(PrefillPattern):
    """Parts of the context see themselves and the first part (the anchor); the last queries see all tokens.

    block  tokens of a part, or a share of the prompt; rounded up to whole blocks of 128 tokens
    query  tokens at the end of the prompt that see all tokens; the blocks of 128 tokens that hold them do
    deviation  The paper computes parts on several machines and merges the query's partial results by their log-sum-exp.
               Lanes of sp do so, too; one rank computes the same sums in one softmax. All tokens keep the positions
               of the text.
    source     Acharya et al. 2024, arXiv:2411.17116, sections 2.1 and 2.2; block and anchor of a quarter as in its code
    """

    ladder = ("star:12.5%", "star:25%", "star:37.5%", "star:50%")
    reads_keys = False

    block: Budget = Budget(0.25, Unit.SHARE)
    query: int = 128

    def __post_init__(self) -> None:
        check_at_least("query", self.query, 0)
        if self.block.unit is Unit.BYTES:
            raise InputError(f"block is {self.block}, expected tokens as in 1024, or a share as in 25%")

    @property
    def in_lanes(self) -> bool:
        """The query's block runs on all lanes, so there has to be one."""
        return self.query > 0

    def mask(self, prompt: Prompt) -> Tensor:
        return self._mask(prompt.num_tokens)

    def lists_of(self, num_tokens: int) -> BlockLists:
        """`lists` of any prompt of so many tokens"""
        return BlockLists.of_mask(self._mask(num_tokens), num_tokens, self.key_block)

    def _mask(self, num_tokens: int) -> Tensor:
        part = torch.arange(num_blocks(num_tokens, BLOCK)) * BLOCK // self.part_tokens(num_tokens)  # [N]
        mask = sees_anchor_and_own(part)
        mask[num_blocks(self.num_context(num_tokens), BLOCK) :] = True
        return mask[None]

    def part_tokens(self, num_tokens: int) -> int:
        """Tokens of a part of so long a prompt, whole blocks."""
        return num_blocks(self.block.of(num_tokens), BLOCK) * BLOCK

    def num_context(self, num_tokens: int) -> int:
        """Tokens of the prompt before the first block of the query, whole blocks if there is a query."""
        return max(num_tokens - self.query, 0) // BLOCK * BLOCK if self.query else num_tokens


def sees_anchor_and_own(part: Tensor) -> Tensor:
    """[N, N] bool: whether a block sees another one of its part or of the first part; part [N]: of each block"""
    return (part[:, None] == part) | (part == 0)
