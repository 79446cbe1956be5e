"""NVFP4 of compressed-tensors: 16 weights of 4-bit floats (E2M1) under an E4M3 scale, and a float32 for the tensor."""

import numpy as np

from quant.formats.e2m1 import E2M1_MAX, pack_pairs, to_e2m1
from quant.formats.e4m3 import E4M3_MAX, E4M3_VALUES, to_e4m3
from quant.formats.fp4_linear import Fp4Format
from quant.qtensor import QTensor

SMALLEST_ABSMAX = np.float32(2.0**-100)  # of a tensor: below, the global scale would overflow
SCALE_OF_ZEROS = np.uint8(0x20)  # 0.125 as E4M3, compressed-tensors' own for a group that rounds to a scale of 0


class Nvfp4A16(Fp4Format):
    """weight = e4m3(s) / global * e2m1(q); inputs are not rounded

    parts   weight_scale          [N, K / 16] uint8   bytes of E4M3
            weight_global_scale   [N, 1] float32      448 * 6 / absmax of the tensor, the same in every row

    The scale of a group brings its largest magnitude to 6.
    source  NVIDIA, NVFP4; compressed-tensors, generate_gparam and calculate_qparams
    """

    name = "nvfp4a16"
    block_size = 16
    rows_stand_alone = False

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        return super().size_bytes(shape) + 4 * shape[0]

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        groups = np.ascontiguousarray(weight, dtype=np.float32).reshape(len(weight), -1, self.block_size)
        absmax = np.abs(groups).max(axis=2)  # [N, K / 16]
        largest = np.maximum(absmax.max(), SMALLEST_ABSMAX)
        # A product with the reciprocal, as torch divides a number by a tensor.
        global_scale = np.full((len(weight), 1), E4M3_MAX * E2M1_MAX * (1 / largest), dtype=np.float32)
        scale = to_e4m3(absmax / E2M1_MAX * global_scale)
        scale = np.where(scale == 0, SCALE_OF_ZEROS, scale)
        codes = to_e2m1(groups / (E4M3_VALUES[scale] / global_scale)[:, :, None])
        return self.pack(codes.reshape(weight.shape), scale, global_scale)

    def pack(self, codes: np.ndarray, scale: np.ndarray, global_scale: np.ndarray) -> QTensor:
        """codes [N, K] uint8 in 0..15, scale [N, K / 16] uint8, global_scale [N, 1] float32"""
        parts = {"weight_packed": pack_pairs(codes), "weight_scale": scale, "weight_global_scale": global_scale}
        return QTensor(self.name, codes.shape, parts)

    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        return E4M3_VALUES[qtensor.parts["weight_scale"]] / qtensor.parts["weight_global_scale"]
