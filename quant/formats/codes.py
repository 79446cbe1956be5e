"""The codes and scales of a quantized matrix, in one form for every format; `qbench doctor` examines them."""

from dataclasses import dataclass

import numpy as np

SHORTEST_RUN = 16  # weights under one scale in a GGUF format: the sub-block of Q2_K, Q3_K and Q6_K


@dataclass(frozen=True, slots=True)
class Codes:
    """The parts of each weight; every array is [N, K].

    level        code less zero point: level 0 means weight 0, up to an offset of the format
    at_end       whether the code is the lowest or the highest of the format
    scale        float32; weight = scale * level, up to an offset
    num_levels   number of codes of the format
    run          number of weights that share a scale
    signed       whether the format may store a negative scale, or a scale of 0 over any codes
    """

    level: np.ndarray
    at_end: np.ndarray
    scale: np.ndarray
    num_levels: int
    run: int
    signed: bool


def codes_of_blocks(
    shape: tuple[int, ...], level: np.ndarray, at_end: np.ndarray, scale: np.ndarray, num_levels: int
) -> Codes:
    """level, at_end, scale [B, block_size] of a matrix of this shape"""
    level, at_end, scale = (array.reshape(shape) for array in (level, at_end, scale))
    return Codes(level, at_end, scale, num_levels, SHORTEST_RUN, signed=True)


def codes_of_int8(q: np.ndarray, scale: np.ndarray) -> Codes:
    """q [N, K] int8, scale [N, 1]; -128, which only files of other tools contain, is an end too"""
    at_end = (q == 127) | (q <= -127)
    return Codes(q, at_end, np.broadcast_to(scale, q.shape), 255, q.shape[1], signed=False)
