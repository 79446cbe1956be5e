"""The codes and scales under a quantized tensor's weights, whatever its format: one row of a table a kind of format."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quant.formats import Format, Int8Format, IntGroupFormat, LlmInt8Format, get_format
from quant.formats.bits import unpack_nibbles
from quant.formats.grid import GridFormat
from quant.formats.iq4_nl import CODEBOOK, IQ4_NL
from quant.formats.iq4_xs import IQ4_XS
from quant.formats.llm_int8 import PER_CODE
from quant.qtensor import QTensor

SHORTEST_RUN = 16  # weights under one scale in a GGUF format: the sub-block of Q2_K, Q3_K and Q6_K


@dataclass(frozen=True, slots=True)
class Codes:
    """What each weight is made of; all [N, K] but the numbers.

    level        the code less its zero point: 0 stands for the weight 0, up to an offset of the format
    at_end       whether the code is the lowest or the highest there is
    scale        float32; the weight is scale * level, up to an offset
    num_levels   codes there are
    run          weights that share a scale
    signed       whether the format may keep a negative scale, or 0 over any codes
    """

    level: np.ndarray
    at_end: np.ndarray
    scale: np.ndarray
    num_levels: int
    run: int
    signed: bool


def read_codes(qtensor: QTensor) -> Codes | None:
    """The codes of a matrix; None for formats of plain floats."""
    fmt = get_format(qtensor.format)
    for kind, read in READERS:
        if isinstance(fmt, kind):
            return read(fmt, qtensor)
    return None


def group_columns(qtensor: QTensor) -> tuple[np.ndarray | None, int]:
    """(order of the columns in which groups are contiguous, None for their own; weights in a group)

    A group is what the format gives a stored scale of its own: a block, a group of input features, or a row.
    """
    fmt, row_size = get_format(qtensor.format), qtensor.shape[-1]
    g_idx = qtensor.shared.get("g_idx")
    order = None if g_idx is None else np.argsort(g_idx, kind="stable")
    return order, fmt.block_size if fmt.block_size > 1 else row_size


def _of_grid(fmt: GridFormat, qtensor: QTensor) -> Codes:
    data = np.ascontiguousarray(qtensor.parts["blocks"]).reshape(-1, fmt.block_bytes)
    grid, q = fmt.read_grid(data), fmt.read_codes(data)
    at_end = (q == grid.qmin) | (q == grid.qmax)
    return _of_blocks(qtensor, q, at_end, grid.scale, grid.qmax - grid.qmin + 1)


def _of_codebook(fmt: IQ4_NL | IQ4_XS, qtensor: QTensor) -> Codes:
    """float16 d first, 4-bit codes last; no level of the codebook is 0"""
    data = np.ascontiguousarray(qtensor.parts["blocks"]).reshape(-1, fmt.block_bytes)
    q = unpack_nibbles(data[:, -fmt.block_size // 2 :].reshape(len(data), -1, 16)).reshape(len(data), -1)
    level = CODEBOOK.decode(q)
    scale = fmt.dequantize_blocks(data) / level
    return _of_blocks(qtensor, level, (q == 0) | (q == 15), scale, 16)


def _of_blocks(qtensor: QTensor, level: np.ndarray, at_end: np.ndarray, scale: np.ndarray, num_levels: int) -> Codes:
    level, at_end, scale = (array.reshape(qtensor.shape) for array in (level, at_end, scale))
    return Codes(level, at_end, scale, num_levels, SHORTEST_RUN, signed=True)


def _of_groups(fmt: IntGroupFormat, qtensor: QTensor) -> Codes:
    row_size = qtensor.shape[1]
    q, scale, zero_point, g_idx = fmt.unpack(qtensor)
    group_of = np.arange(row_size) // (fmt.group_size or row_size) if g_idx is None else g_idx
    level = q.astype(np.int16) - zero_point[:, group_of]
    at_end = (q == fmt.qmin) | (q == fmt.qmax)
    scale = scale.astype(np.float32)[:, group_of]
    return Codes(level, at_end, scale, 1 << fmt.bits, fmt.group_size or row_size, signed=False)


def _of_int8(fmt: Int8Format, qtensor: QTensor) -> Codes:
    return _of_rows(qtensor, qtensor.parts["weight_scale"])


def _of_llm_int8(fmt: LlmInt8Format, qtensor: QTensor) -> Codes:
    return _of_rows(qtensor, qtensor.parts["SCB"][:, None] * PER_CODE)


def _of_rows(qtensor: QTensor, scale: np.ndarray) -> Codes:
    """scale [N, 1]; -128 is an end, too, where others' files have it"""
    q = qtensor.parts["weight"]
    at_end = (q == 127) | (q <= -127)
    return Codes(q, at_end, np.broadcast_to(scale, q.shape), 255, qtensor.shape[1], signed=False)


READERS: tuple[tuple[type[Format], Callable[..., Codes]], ...] = (
    (GridFormat, _of_grid),
    (IQ4_NL, _of_codebook),
    (IQ4_XS, _of_codebook),
    (IntGroupFormat, _of_groups),
    (Int8Format, _of_int8),
    (LlmInt8Format, _of_llm_int8),
)
