"""Share: the tokens of a sequence whose keys and values one lane keeps, if lanes keep different tokens."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

# Whole groups of every KV format (32 tokens) and whole blocks of every storage (16). Small, so that shares of a short
# text are about equal; large enough for the queries of a prompt to fill the tiles of the kernels.
SHARE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Share:
    """Blocks of `block` tokens go to the lanes in turn, the first to lane 0."""

    lane: int
    num_lanes: int
    block: int = SHARE_TOKENS

    def count(self, seq_lens: Any) -> Any:
        """Own tokens of sequences of so many tokens: an int, or [B] int64."""
        turns, rest = np.divmod(seq_lens, self.block * self.num_lanes)
        return turns * self.block + np.clip(rest - self.lane * self.block, 0, self.block)

    def owns(self, positions: Tensor) -> Tensor:
        """[T] bool"""
        return positions // self.block % self.num_lanes == self.lane

    def positions(self, seq_len: int) -> Tensor:
        """[n] int64: own tokens of the first `seq_len`, ascending"""
        every = torch.arange(seq_len)
        return every[self.owns(every)]


class Seen(Protocol):
    """Queries, and the tokens in the slots that they attend to, at places in one text."""

    @property
    def positions(self) -> Tensor:
        """[T] int64: of the queries, one after another"""
        ...

    @property
    def held(self) -> Tensor:
        """[S] int64: of the tokens in the slots, ascending"""
        ...


@dataclass(frozen=True, slots=True)
class NewTokens:
    """The new tokens of one or more sequences of one length, of which a storage keeps a share.

    positions  [T] int64, one after another, in the text
    """

    share: Share
    positions: Tensor

    @property
    def own(self) -> Tensor:
        """[T] bool: tokens to store"""
        return self.share.owns(self.positions)

    @property
    def held(self) -> Tensor:
        """[S] int64: positions of the tokens in the slots, once the own ones are stored"""
        return self.share.positions(int(self.positions[-1]) + 1)
