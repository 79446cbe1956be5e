"""Codes of 4 and 5 bits in bytes, in the layout of the GGUF blocks."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def pack_nibbles(q: np.ndarray) -> np.ndarray:
    """q [..., 2n] uint8 below 16 -> [..., n]: the first half in the low nibbles, the second in the high ones."""
    n = q.shape[-1] // 2
    return q[..., :n] | q[..., n:] << 4


def unpack_nibbles(data: np.ndarray) -> np.ndarray:
    """[..., n] uint8 -> q [..., 2n] uint8"""
    return np.concatenate([data & 0x0F, data >> 4], axis=-1)


def pack_bits(bit: np.ndarray) -> np.ndarray:
    """bit [..., 32] uint8 0 or 1 -> [..., 4]: weight i is bit i of a little-endian uint32"""
    return np.packbits(bit, axis=-1, bitorder="little")


def unpack_bits(data: np.ndarray) -> np.ndarray:
    """[..., 4] uint8 -> bit [..., 32] uint8"""
    return np.unpackbits(data, axis=-1, bitorder="little")


def pack_five_bits(q: np.ndarray) -> np.ndarray:
    """q [..., 32] uint8 below 32 -> [..., 20]: the fifth bits as `pack_bits`, then the others as `pack_nibbles`"""
    return np.concatenate([pack_bits(q >> 4), pack_nibbles(q & 15)], axis=-1)


def unpack_five_bits(data: np.ndarray) -> np.ndarray:
    """[..., 20] uint8 -> q [..., 32] uint8"""
    return unpack_nibbles(data[..., 4:]) | unpack_bits(data[..., :4]) << 4


class Packing(NamedTuple):
    """Layout of codes of `bits` bits in bytes: q uint8 below 2**bits -> bytes, and back."""

    bits: int
    pack: Callable[[np.ndarray], np.ndarray]
    unpack: Callable[[np.ndarray], np.ndarray]


NIBBLES = Packing(4, pack_nibbles, unpack_nibbles)
FIVE_BITS = Packing(5, pack_five_bits, unpack_five_bits)
