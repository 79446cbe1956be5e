"""4-bit floats whose input features are turned first: each block of a row times a Hadamard matrix of its size.

An outlier then spreads over the weights that share its scale. The inputs of a linear take the same matrix, which is
symmetric and its own inverse, so y = (x H) (W H)^T = x W^T. compressed-tensors calls that a transform of the type
"hadamard", at the locations "input" and "weight_input".
"""

import numpy as np

from quant.formats.fp4_linear import Fp4Format
from quant.formats.mxfp4a16 import Mxfp4A16
from quant.formats.nvfp4a16 import Nvfp4A16
from quant.qtensor import QTensor
from quant.turn import hadamard_runs

SUFFIX = "-had"  # of a format's name


class TurnedFp4(Fp4Format):
    """weight = (weight of the plain format) H; parts and bytes are those of the plain format

    source   Egiazarian et al. 2025, arXiv:2509.23202 (MR-GPTQ): a Hadamard matrix of the size of the format's groups
    """

    @property
    def plain_name(self) -> str:
        """The format of the same codes without a turn."""
        return self.name.removesuffix(SUFFIX)

    def turn(self, values: np.ndarray) -> np.ndarray:
        """values [..., K] float32 -> values H; the turned values turned again are the values"""
        return hadamard_runs(values, self.block_size)

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        return self._named(super().quantize_ref(self.turn(weight)))

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        self.check_matrix(weight.shape)
        if importance is not None:  # every feature of a block gets an equal part of each turned one
            means = importance.reshape(-1, self.block_size).mean(axis=1)
            importance = np.repeat(means, self.block_size).astype(np.float32)
        return self._named(super().quantize(self.turn(weight), importance=importance, effort=effort))

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        return self.turn(super().dequantize_ref(qtensor))

    def plain(self, qtensor: QTensor) -> QTensor:
        """The same codes as the format without a turn, which the turned inputs are multiplied with."""
        return QTensor(self.plain_name, qtensor.shape, qtensor.parts)

    def _named(self, qtensor: QTensor) -> QTensor:
        return QTensor(self.name, qtensor.shape, qtensor.parts)


class TurnedNvfp4(TurnedFp4, Nvfp4A16):
    name = f"nvfp4a16{SUFFIX}"

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        return self.quantize_ref(weight)


class TurnedMxfp4(TurnedFp4, Mxfp4A16):
    name = f"mxfp4a16{SUFFIX}"


TURNED_FP4_FORMATS = {fmt.name: fmt for fmt in (TurnedNvfp4(), TurnedMxfp4())}
