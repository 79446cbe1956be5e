"""`BlockStore`: blocks of keys and values under the digests of their hash chains, outside the pool."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import add

import numpy as np

from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class BlockKey:
    """A block of one chain.

    root    of the chain, so that all blocks of a version can be deleted
    digest  of all tokens up to the block's end
    depth   its number in the chain
    """

    root: bytes
    digest: bytes
    depth: int


@dataclass(frozen=True, slots=True)
class BlockNote:
    """Facts that are stored next to a block.

    computed_at  seconds since 1970: when the oldest block of the chain up to here was computed
    compute_s    seconds that computing the block took; 0: unknown
    """

    computed_at: float
    compute_s: float = 0.0


class CorruptBlock(ValueError):
    """The stored bytes are not those that were written; the store has forgotten them."""


@dataclass(slots=True)
class BlockStoreCounts(JsonData):
    """Since the store was opened.

    written_bytes   of blocks that are on the disk, with headers: written, synchronised and renamed
    corrupt_blocks  blocks whose checksum was wrong
    errors          operations that the disk refused
    """

    written_bytes: int = 0
    written_blocks: int = 0
    evicted_blocks: int = 0
    corrupt_blocks: int = 0
    errors: int = 0

    def __add__(self, other: "BlockStoreCounts") -> "BlockStoreCounts":
        return BlockStoreCounts(*map(add, astuple(self), astuple(other)))


class BlockStore(ABC):
    """No method raises an error of the disk: a block that cannot be read is missing, one that cannot be written is
    not kept. Methods may be called from several threads.

    block_bytes  of every block
    counts       of this process
    """

    block_bytes: int
    counts: BlockStoreCounts

    @abstractmethod
    def has(self, key: BlockKey) -> bool: ...

    @abstractmethod
    def get(self, key: BlockKey, out: np.ndarray) -> BlockNote | None:
        """Read a block into `out` [block_bytes] uint8; None if it is not there.

        raises   CorruptBlock
        """

    @abstractmethod
    def put(self, key: BlockKey, data: np.ndarray, note: BlockNote) -> bool:
        """Keep a block [block_bytes] uint8. When this returns True, it outlives the process."""

    @abstractmethod
    def touch(self, keys: Sequence[BlockKey]) -> None:
        """These blocks of one chain were used."""

    @abstractmethod
    def delete(self, root: bytes) -> None:
        """Forget all chains with this root."""
