"""`BlockLists`: which blocks of the attention matrix are computed, as a list of key blocks per block of queries."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

BLOCK = 128  # tokens of a block of queries, as in the papers


def num_blocks(num_tokens: int, block: int) -> int:
    """Blocks that cover the tokens; the last one may be shorter."""
    return -(-num_tokens // block)


@dataclass(frozen=True)
class BlockLists:
    """Key blocks of every block of queries, in compressed rows (CSR).

    A query sees the tokens of its list that are not after itself. Query t is token t: a prefill begins at token 0.

    offsets     [L, N + 1] int64: list i of row l is indices[offsets[l, i] : offsets[l, i + 1]]. L is 1 if all heads
                share their lists, else the number of heads. N is the number of query blocks
    indices     [n] int32: key blocks, ascending in each list
    num_tokens  tokens of the prompt
    key_block   tokens of a key block, a multiple of 16; a query block has BLOCK
    """

    offsets: Tensor
    indices: Tensor
    num_tokens: int
    key_block: int = BLOCK

    @classmethod
    def of_mask(cls, mask: Tensor, num_tokens: int, key_block: int = BLOCK) -> "BlockLists":
        """The causal part of a mask [L, N, K] bool of query blocks and key blocks."""
        mask = mask & causal_blocks(num_tokens, key_block)
        ends = mask.sum(2).flatten().cumsum(0).view(mask.shape[:2])  # [L, N]
        starts = torch.cat((torch.zeros(1, dtype=torch.int64), ends.flatten()[:-1])).view(mask.shape[:2])
        offsets = torch.cat((starts, ends[:, -1:]), dim=1)
        return cls(offsets, mask.nonzero()[:, 2].int(), num_tokens, key_block)

    @cached_property
    def share(self) -> float:
        """Blocks that are listed, over all causal blocks."""
        rows = len(self.offsets)
        return len(self.indices) / (rows * int(causal_blocks(self.num_tokens, self.key_block).sum()))

    def blocks(self) -> Tensor:
        """[L, N, K] bool: whether a block is listed"""
        num_lists, num_queries = self.offsets.shape[0], self.offsets.shape[1] - 1
        blocks = torch.zeros(num_lists * num_queries, num_blocks(self.num_tokens, self.key_block), dtype=torch.bool)
        rows = torch.arange(len(blocks)).repeat_interleave(self.offsets.diff(dim=1).flatten())
        blocks[rows, self.indices.long()] = True
        return blocks.view(num_lists, num_queries, -1)

    def seen(self, blocks: Tensor, number: int) -> Tensor:
        """[L, t, T] bool: whether each of the t queries of block `number` sees a key.

        blocks  the result of `blocks`
        """
        queries = torch.arange(number * BLOCK, min((number + 1) * BLOCK, self.num_tokens))
        keys = blocks[:, number].repeat_interleave(self.key_block, 1)[:, : self.num_tokens]  # [L, T]
        return keys[:, None] & (torch.arange(self.num_tokens) <= queries[:, None])


def causal_blocks(num_tokens: int, key_block: int = BLOCK) -> Tensor:
    """[N, K] bool: whether a block holds any key that any of its queries may see."""
    last_query = torch.arange(1, num_blocks(num_tokens, BLOCK) + 1) * BLOCK - 1  # [N]
    first_key = torch.arange(num_blocks(num_tokens, key_block)) * key_block  # [K]
    return first_key <= last_query.clamp(max=num_tokens - 1)[:, None]
