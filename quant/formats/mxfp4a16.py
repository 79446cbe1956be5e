"""MXFP4 of compressed-tensors: the weights of the format mxfp4, with scales and codes in parts of their own."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.e2m1 import pack_pairs, unpack_pairs
from quant.formats.fp4_linear import Fp4Format
from quant.formats.mxfp4 import MXFP4
from quant.qtensor import QTensor

BLOCKS = MXFP4()


class Mxfp4A16(Fp4Format):
    """weight = 2**(e - 127) * e2m1(q); inputs are not rounded

    parts   weight_scale   [N, K / 32] uint8   the exponents e
    """

    name = "mxfp4a16"
    block_size = 32

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        return from_blocks(BLOCKS.quantize(weight, importance=importance, effort=effort))

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        return from_blocks(BLOCKS.quantize_ref(weight))

    def scale_candidates(self, absmax: np.ndarray, global_scale: np.ndarray) -> list[np.ndarray]:
        """The power of two that brings the largest magnitude to 4 to 8, and the next one."""
        exponent = np.frexp(absmax)[1] - 1 - 2 + 127
        return [np.clip(exponent + more, 0, 252).astype(np.uint8) for more in (0, 1)]

    def scale_values(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        return np.ldexp(np.float32(1), scale.astype(np.int32) - 127)

    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        return self.scale_values(qtensor.parts["weight_scale"], np.ones(1, dtype=np.float32))


def from_blocks(qtensor: QTensor) -> QTensor:
    """A matrix of mxfp4 -> the same in mxfp4a16"""
    blocks = qtensor.parts["blocks"].reshape(qtensor.shape[0], -1, BLOCKS.block_bytes)
    codes = unpack_nibbles(blocks[:, :, 1:]).reshape(qtensor.shape)
    parts = {"weight_packed": pack_pairs(codes), "weight_scale": np.ascontiguousarray(blocks[:, :, 0])}
    return QTensor(Mxfp4A16.name, qtensor.shape, parts)


def to_blocks(qtensor: QTensor) -> QTensor:
    """A matrix of mxfp4a16 -> the same in mxfp4, which has kernels"""
    scale = qtensor.parts["weight_scale"]
    codes = unpack_pairs(qtensor.parts["weight_packed"]).reshape(*scale.shape, BLOCKS.block_size)
    blocks = np.concatenate([scale[:, :, None], pack_nibbles(codes)], axis=2)
    return QTensor(BLOCKS.name, qtensor.shape, {"blocks": blocks.reshape(len(scale), -1)})
