"""NVFP4 of compressed-tensors: 16 weights of 4-bit floats (E2M1) under an E4M3 scale, and a float32 for the tensor."""

import numpy as np

from quant.formats.e2m1 import E2M1_MAX, to_e2m1
from quant.formats.e4m3 import E4M3_MAX, E4M3_VALUES, to_e4m3
from quant.formats.fp4_linear import Fp4Format
from quant.qtensor import QTensor

SMALLEST_ABSMAX = np.float32(2.0**-100)  # of a tensor: below, the global scale would overflow
# Parts of the scale that brings the largest magnitude to 6: below 1 it is clipped, at 1.5 it comes to 4.
SHARES = np.array([1, 1.5, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7], dtype=np.float32)
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
        global_scale = self.global_scale_of(weight)
        scale = self.scale_candidates(absmax, global_scale)[0]
        codes = to_e2m1(groups / self.scale_values(scale, global_scale)[:, :, None])
        return self.pack(codes.reshape(weight.shape), scale, global_scale)

    def global_scale_of(self, weight: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(weight).max(), SMALLEST_ABSMAX).astype(np.float32)
        # A product with the reciprocal, as torch divides a number by a tensor.
        return np.full((len(weight), 1), E4M3_MAX * E2M1_MAX * (1 / largest), dtype=np.float32)

    def scale_candidates(self, absmax: np.ndarray, global_scale: np.ndarray) -> list[np.ndarray]:
        scales = [to_e4m3(absmax / E2M1_MAX * global_scale * share) for share in SHARES]
        return [np.where(scale == 0, SCALE_OF_ZEROS, scale) for scale in scales]

    def scale_values(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        return E4M3_VALUES[scale] / global_scale

    def pack(self, codes: np.ndarray, scale: np.ndarray, global_scale: np.ndarray) -> QTensor:
        packed = super().pack(codes, scale, global_scale)
        return QTensor(self.name, packed.shape, {**packed.parts, "weight_global_scale": global_scale})

    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        return self.scale_values(qtensor.parts["weight_scale"], qtensor.parts["weight_global_scale"])
