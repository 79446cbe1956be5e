"""The trellis code: each weight takes few new bits, and is decided by these and by those before it.

A tile is 256 values and a circle of 256 * bits bits, most significant bit first. State t is the `state_bits` bits up to
and including symbol t, and its value is

    h = state * MULTIPLIER + ADDEND (mod 2^32)        value = sum of the four bytes of h - 510

so neighbours share bits, no table is read, and the values are near a normal distribution of deviation 147.8. The
constants are the best of 400 random pairs at 2 bits and 12 state bits; those of QTIP's 1MAD lose 3.5 % there.
source   Tseng et al. 2024, arXiv:2406.11235 (QTIP): the bitshift trellis, 1MAD, and algorithm 4 for the circle
"""

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from quant.extension import import_kernels

TILE = 256
MULTIPLIER, ADDEND = 2472362639, 2959306914
LARGEST_BITS, LEAST_STATE_BITS, LARGEST_STATE_BITS = 4, 8, 16
WORD_BITS = 16


def trellis_kernels() -> ModuleType | None:
    """cpu_kernels.trellis; None if this installation has no extension, so that the NumPy code is used."""
    return import_kernels("cpu_kernels.trellis")


@dataclass(frozen=True, slots=True)
class TrellisCode:
    """bits         of one value, 1 to 4
    state_bits   bits that decide one value; each one more doubles the time of encoding
    """

    bits: int
    state_bits: int

    @property
    def num_words(self) -> int:
        """Words of 16 bits in a tile."""
        return TILE * self.bits // WORD_BITS

    def encode(self, x: np.ndarray) -> np.ndarray:
        """x [tiles, 256] float32, finite, in the units of the values -> [tiles, num_words] uint16"""
        kernels = trellis_kernels()
        if kernels is None:
            return self.encode_ref(x)
        return kernels.encode(np.ascontiguousarray(x, dtype=np.float32), self.bits, self.state_bits)

    def decode(self, packed: np.ndarray) -> np.ndarray:
        """packed [tiles, num_words] uint16 -> [tiles, 256] float32, whole numbers from -510 to 510"""
        kernels = trellis_kernels()
        if kernels is None:
            return self.decode_ref(packed)
        return kernels.decode(np.ascontiguousarray(packed), self.bits, self.state_bits)

    def encode_ref(self, x: np.ndarray) -> np.ndarray:
        """Two runs of the Viterbi algorithm: over the tile turned by half, to find the bits where the circle closes,
        and over the tile with these bits given.
        """
        x = np.asarray(x, dtype=np.float32)
        turned = self._search(np.roll(x, -(TILE // 2), axis=1), None)
        states = self._search(x, turned[:, TILE // 2] >> self.bits)
        shifts = np.arange(self.bits - 1, -1, -1)
        stream = (states[:, :, None] >> shifts & 1).reshape(len(x), -1, WORD_BITS)
        return (stream << np.arange(WORD_BITS - 1, -1, -1)).sum(axis=2).astype(np.uint16)

    def decode_ref(self, packed: np.ndarray) -> np.ndarray:
        return _values(self.state_bits)[self.states(packed)]

    def states(self, packed: np.ndarray) -> np.ndarray:
        """[tiles, 256] int64"""
        words = packed.astype(np.int64)
        pairs = np.roll(words, 1, axis=1) << WORD_BITS | words  # each word behind the one before it
        last = (np.arange(TILE) + 1) * self.bits - 1  # the last bit of each state
        shifts = WORD_BITS - 1 - last % WORD_BITS
        return pairs[:, last // WORD_BITS] >> shifts & ((1 << self.state_bits) - 1)

    def _search(self, x: np.ndarray, ends: np.ndarray | None) -> np.ndarray:
        """States [tiles, 256] of the paths of least squared error that begin after and end in the bits `ends` [tiles],
        or in any. Ties go to the lowest symbol.
        """
        rows, num_ends = np.arange(len(x)), 1 << self.state_bits - self.bits
        values = _values(self.state_bits)
        cost = np.zeros((len(x), num_ends), dtype=np.float32)
        if ends is not None:
            cost[:] = np.inf
            cost[rows, ends] = 0
        oldest = np.empty((TILE, len(x), num_ends), dtype=np.uint8)
        for t in range(TILE):
            error = values - x[:, t : t + 1]  # [tiles, states]
            total = np.repeat(cost, 1 << self.bits, axis=1) + error * error
            of_symbol = total.reshape(len(x), 1 << self.bits, num_ends)
            oldest[t] = of_symbol.argmin(axis=1)
            cost = of_symbol.min(axis=1)
        end = cost.argmin(axis=1) if ends is None else ends
        states = np.empty((len(x), TILE), dtype=np.int64)
        for t in range(TILE - 1, -1, -1):
            states[:, t] = end + oldest[t, rows, end].astype(np.int64) * num_ends
            end = states[:, t] >> self.bits
        return states


@lru_cache
def _values(state_bits: int) -> np.ndarray:
    """[2**state_bits] float32"""
    hashed = (np.arange(1 << state_bits, dtype=np.uint64) * MULTIPLIER + ADDEND).astype("<u4")
    return hashed.view(np.uint8).reshape(-1, 4).sum(axis=1, dtype=np.float32) - np.float32(510)
