"""Star Attention: parts of the context that see themselves and the first part, then a query part that sees all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.policies import Budget
from qbench.policies.budget import Unit
from qbench.policies.policy import check_at_least
from qbench.prefill.block_lists import BLOCK, num_blocks
from qbench.prefill.pattern import PrefillPattern, Prompt
from qbench.prefill.registry import pattern
from quant.errors import InputError


@pattern("star")
@dataclass(frozen=True)
class Star(PrefillPattern):
    """Parts of the context see themselves and the first part (the anchor); the last queries see all tokens.

    block  tokens of a part, or a share of the prompt; rounded up to whole blocks of 128 tokens
    query  tokens at the end of the prompt that see all tokens; the blocks of 128 tokens that hold them do
    deviation  The paper computes parts on several machines and merges the query's partial results by their log-sum-exp.
               Here one machine computes the same sums in one softmax. All tokens keep the positions of the text.
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

    def mask(self, prompt: Prompt) -> Tensor:
        part_blocks = num_blocks(self.block.of(prompt.num_tokens), BLOCK)
        part = torch.arange(prompt.num_blocks) // part_blocks  # [N]
        mask = (part[:, None] == part) | (part == 0)
        mask[max(prompt.num_tokens - self.query, 0) // BLOCK :] |= self.query > 0
        return mask[None]
