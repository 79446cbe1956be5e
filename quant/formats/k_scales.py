"""The 12 bytes in which Q4_K and Q5_K keep 8 scales and 8 minima of 6 bits.

Letters A..H are the eight scales, a..h the eight minima; a letter is one bit, high bits left.

    byte 0 1 2 3    EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD    scales 0..3, above them the top bits of scales 4..7
    byte 4 5 6 7    eeaaaaaa ffbbbbbb ggcccccc hhdddddd    minima 0..3, above them the top bits of minima 4..7
    byte 8 9 10 11  eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH    low nibbles of minima 4..7 and scales 4..7
"""

import numpy as np


def pack_k_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """scales, minima [B, 8] uint8 below 64 -> [B, 12] uint8"""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    third = scales[:, 4:] & 0x0F | minima[:, 4:] << 4
    return np.concatenate([first, second, third], axis=1)


def unpack_k_scales(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B, 12] uint8 -> scales, minima [B, 8] uint8"""
    first, second, third = data[:, :4], data[:, 4:8], data[:, 8:]
    scales = np.concatenate([first & 0x3F, third & 0x0F | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 0x3F, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima
