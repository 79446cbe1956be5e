"""W4A4: 4-bit weights per channel, and 4-bit activations that they are multiplied with."""

from collections.abc import Mapping

import numpy as np

from quant.formats.int8 import SMALLEST_SCALE
from quant.formats.int_group import IntGroupFormat
from quant.formats.integer_format import ActivationFormat
from quant.qtensor import QTensor

BITS = 4


class W4A4Format(IntGroupFormat, ActivationFormat):
    """Weights as in w4, and x ~= x_scale * x_q with a scale per token: "pack-quantized" with input_activations.

    parts   those of IntGroupFormat for 4 bits and one group per row

    x_scale = absmax / 7.5 and x_q = round(x / x_scale) to even, from -8 to 7: the weights' rule, and that of
    compressed-tensors for inputs. The largest positive input may lose half the step size.
    source  Ashkboos et al. 2024, arXiv:2404.00456 (QuaRot), section 4: a symmetric scale per token
    """

    def __init__(self) -> None:
        super().__init__(BITS, None)
        self.name = "w4a4"

    def add_zero_column(self, qtensor: QTensor) -> QTensor:
        q, scale, _, _ = self.unpack(qtensor)
        return self.pack(np.pad(q, ((0, 0), (0, 1))), scale)

    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.abs(x).max(axis=1, keepdims=True, initial=0)

    def input_codes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x [M, K] float32 -> codes [M, K] float32, whole numbers from -8 to 7; scale [M, 1] float32 above 0"""
        half_range = np.float32((self.qmax - self.qmin) / 2)
        scale = np.maximum(self.input_absmax(x, {}) / half_range, SMALLEST_SCALE)
        return np.clip(np.rint(x / scale), self.qmin, self.qmax), scale

    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        codes, scale = self.input_codes(x)
        return codes * scale
