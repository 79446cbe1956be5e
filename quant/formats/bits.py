"""Codes of a few bits, and float16 scales, as bytes.

GGUF blocks hold codes of 4 and 5 bits as nibbles, and each scale as a float16. compressed-tensors packs signed
integers of 1 to 8 bits densely into int32 words: q + 2**(bits - 1) of weight i fills the bits from i * bits of one
little-endian stream per row, so with 4 bits:

    bit 31   28 27   24               7    4 3    0
       +-------+-------+-----  -----+-------+------+
       | q + 8 | q + 8 |    ...     | q + 8 | q + 8|   word j holds weights 8j (lowest bits) to 8j + 7
       +-------+-------+-----  -----+-------+------+

and with 3 bits one code may be in two words. Zero bits fill the last word of a row.
"""

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


HALF_MAX = np.float32(65504.0)  # largest finite float16


def to_half(value: np.ndarray) -> np.ndarray:
    """float32 -> float16, nearest even; beyond the range the largest finite value, never inf."""
    return np.clip(value, -HALF_MAX, HALF_MAX).astype(np.float16)


def half_bytes(value: np.ndarray) -> np.ndarray:
    """[B] float16 -> [B, 2] uint8, little endian"""
    return value.astype("<f2").view(np.uint8).reshape(-1, 2)


def half_from_bytes(data: np.ndarray) -> np.ndarray:
    """[B, 2] uint8 -> [B] float32"""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32).reshape(-1)


def inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, and 0 where scale is 0 or so small that its inverse is no finite float32."""
    smallest = np.float32(2.0**-126)
    usable = np.abs(scale) >= smallest
    return np.where(usable, 1 / np.where(usable, scale, 1), 0).astype(np.float32)


def packed_words(row_size: int, bits: int) -> int:
    """int32 words that a row takes"""
    return -(-row_size * bits // 32)


def pack_int32(q: np.ndarray, bits: int) -> np.ndarray:
    """q [N, K] int8 in -2**(bits-1)..2**(bits-1)-1 -> [N, packed_words(K, bits)] int32"""
    num_rows, row_size = q.shape
    unsigned = q.view(np.uint8) + np.uint8(1 << bits - 1)  # wraps round to 0..2**bits - 1
    data = np.zeros((num_rows, 4 * packed_words(row_size, bits)), dtype=np.uint8)
    if 8 % bits == 0:
        whole = np.zeros((num_rows, data.shape[1], 8 // bits), dtype=np.uint8)  # codes by the byte they share
        whole.reshape(num_rows, -1)[:, :row_size] = unsigned
        for i in range(8 // bits):
            data |= whole[:, :, i] << i * bits
    else:
        stream = np.unpackbits(unsigned[:, :, None], axis=2, count=bits, bitorder="little").reshape(num_rows, -1)
        packed = np.packbits(stream, axis=1, bitorder="little")
        data[:, : packed.shape[1]] = packed
    return data.view("<i4").astype(np.int32, copy=False)


def unpack_int32(packed: np.ndarray, bits: int, row_size: int) -> np.ndarray:
    """packed [N, packed_words(K, bits)] int32 -> q [N, K] int8"""
    data = np.ascontiguousarray(packed).astype("<i4", copy=False).view(np.uint8)
    if 8 % bits == 0:
        codes = [data >> i * bits & (1 << bits) - 1 for i in range(8 // bits)]
        unsigned = np.stack(codes, axis=2).reshape(len(data), -1)[:, :row_size]
    else:
        stream = np.unpackbits(data, axis=1, count=row_size * bits, bitorder="little")
        unsigned = np.packbits(stream.reshape(len(data), row_size, bits), axis=2, bitorder="little")[:, :, 0]
    return (unsigned - np.uint8(1 << bits - 1)).view(np.int8)  # wraps round to the negative codes
