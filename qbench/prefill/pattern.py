"""`PrefillPattern`: which blocks of the attention matrix a prefill computes; the names of all, and common sums."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qbench.prefill.block_lists import BLOCK, BlockLists, num_blocks
from qbench.words.registry import Named, Registry
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One layer of one prompt, from its first token on.

    q              [H, T, D] float32, rotated
    keys, values   [G, T, D] float32 as attention reads them, keys rotated; head h reads kv head h // (H / G)
    softmax_scale  factor of the attention scores
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    softmax_scale: float

    @property
    def num_tokens(self) -> int:
        return self.q.shape[1]

    @property
    def num_blocks(self) -> int:
        return num_blocks(self.num_tokens, BLOCK)

    def scores(self, first: int) -> Tensor:
        """[H, T - first, T]: scaled products of the queries from `first` on, minus infinity where a key is later."""
        grouped = self.q[:, first:].unflatten(0, (len(self.keys), -1))  # [G, H / G, T - first, D]
        scores = self.softmax_scale * grouped @ self.keys[:, None].mT
        later = torch.ones(scores.shape[2], scores.shape[2], dtype=torch.bool).triu(1)
        scores[..., first:].masked_fill_(later, -torch.inf)  # no query sees less than the tokens before them all
        return scores.flatten(0, 1)


@dataclass(frozen=True, slots=True)
class Summaries:
    """Keys and values of which each replaces several tokens.

    keys, values  [G, M, D] float32
    tokens        number of tokens that each summary replaces
    segment       tokens of a segment; a query sees the summaries of the segments before its own
    """

    keys: Tensor
    values: Tensor
    tokens: int
    segment: int


class PrefillPattern(Named, ABC):
    """Chooses blocks of the attention matrix. Subclasses are frozen dataclasses of their options.

    reads_keys  whether `mask` or `summaries` looks at queries, keys or values, and not at the number of tokens alone
    key_block   tokens of a key block, a multiple of 16
    ladder      settings from sparse to nearly dense, for whoever looks for one that covers some attention mass
    """

    ladder: ClassVar[tuple[str, ...]] = ()
    reads_keys: ClassVar[bool] = True
    key_block: ClassVar[int] = BLOCK

    @property
    def in_lanes(self) -> bool:
        """Whether lanes can compute parts of a prompt apart from each other"""
        return False

    @abstractmethod
    def mask(self, prompt: Prompt) -> Tensor:
        """[L, N, K] bool: key blocks per query block; L is 1 if all heads share them, else the number of heads"""

    def lists(self, prompt: Prompt) -> BlockLists:
        """The causal part of `mask`."""
        return BlockLists.of_mask(self.mask(prompt), prompt.num_tokens, self.key_block)

    def summaries(self, prompt: Prompt) -> Summaries | None:
        """Keys and values that queries see instead of some of the tokens; None: no such"""
        return None


def check_block(name: str, tokens: int) -> None:
    """raises InputError for a number of tokens that is not a multiple of BLOCK"""
    if tokens < BLOCK or tokens % BLOCK:
        raise InputError(f"{name} is {tokens}, expected a multiple of {BLOCK} tokens")


def check_share(name: str, share: float) -> None:
    """raises InputError for a share that is not above 0 and up to 1"""
    if not 0 < share <= 1:
        raise InputError(f"{name} is {share:g}, expected a share above 0 and up to 1")


def last_weights(prompt: Prompt, count: int) -> Tensor:
    """[H, t, T]: weights of the last `count` queries, or of all if there are fewer"""
    return prompt.scores(max(prompt.num_tokens - count, 0)).softmax(-1)


def vertical_sums(weights: Tensor) -> Tensor:
    """[H, T]: weight of each key, summed over the queries [H, t, T]"""
    return weights.sum(1)


def slash_sums(weights: Tensor) -> Tensor:
    """[H, T]: weight at each distance from a query to a key, summed over the queries [H, t, T], the last of T"""
    heads, count, num_tokens = weights.shape
    by_place = weights.new_zeros(heads, num_tokens + count - 1)  # place T - 1 - d holds distance d
    for i in range(count):  # row i is token T - count + i: its key s is at distance T - count + i - s
        by_place[:, count - 1 - i : count - 1 - i + num_tokens] += weights[:, i]
    return by_place[:, :num_tokens].flip(1)  # later places are keys after their query, whose weights are 0


# Names of prefill patterns: `@pattern("star")` registers a class, `parse_pattern("star:block=25%")` makes one.
_PATTERNS = Registry[PrefillPattern]("prefill pattern")
pattern = _PATTERNS.register
pattern_names = _PATTERNS.names
pattern_entries = _PATTERNS.entries
parse_pattern = _PATTERNS.parse
