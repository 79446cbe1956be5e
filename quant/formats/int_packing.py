"""Signed integers of 1 to 8 bits packed densely into int32 words, as compressed-tensors packs them.

q + 2**(bits - 1) of weight i fills the bits from i * bits of one little-endian stream a row, so with 4 bits:

    bit 31   28 27   24               7    4 3    0
       +-------+-------+-----  -----+-------+------+
       | q + 8 | q + 8 |    ...     | q + 8 | q + 8|   word j holds weights 8j (lowest bits) to 8j + 7
       +-------+-------+-----  -----+-------+------+

and with 3 bits one code may be in two words. Zero bits fill the last word of a row.
"""

import numpy as np


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
