"""IntegerFormat, rounded by the compiled kernels if installed, and ActivationFormat, which rounds inputs too."""

from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.extension import import_kernels
from quant.formats.base import Format
from quant.qtensor import QTensor


def integer_kernels() -> ModuleType | None:
    """cpu_kernels.group_quant; None if this installation has no extension, so that the NumPy codecs are used."""
    return import_kernels("cpu_kernels.group_quant")


class IntegerFormat(Format):
    """Format of matrices [N, K]. A subclass names the kernel and the check of the weights that the kernel refuses."""

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """raises InputError if this is no matrix [N, K]"""
        if len(shape) != 2:
            raise InputError(f"{self.name} holds matrices [N, K], got shape {shape}")
        self.check_row(shape[1])

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        kernels = integer_kernels()
        if kernels is None:
            return self.quantize_ref(weight)
        self.check_shape(weight.shape)
        weight = np.ascontiguousarray(weight, dtype=np.float32)
        try:
            return QTensor(self.name, weight.shape, self._round(kernels, weight))
        except ValueError:
            self._check_values(weight)
            raise

    @abstractmethod
    def _round(self, kernels: ModuleType, weight: np.ndarray) -> dict[str, np.ndarray]:
        """Parts of the QTensor of weight [N, K] float32.

        raises   ValueError for weights that the format cannot hold
        """

    @abstractmethod
    def _check_values(self, values: np.ndarray) -> None:
        """raises InputError for values that the format cannot hold"""


class ActivationFormat(IntegerFormat):
    """A format whose linear computes y = fake_quantize_input(x) @ dequantize(weight).T, in integers if possible.

    has_input_scale    whether the scale of an input follows from its values
    static_inputs      whether one scale, found by calibration, holds for all inputs
    """

    block_size = 1
    has_input_scale: bool = True
    static_inputs: bool = False

    @property
    def bits_per_weight(self) -> float:
        """Codes; the scales add 32 / K, which only size_bytes can know."""
        return 8.0

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Codes and scales. Parts that calibration adds, an input's scale or outliers' weights, are only known to a
        QTensor.
        """
        self.check_shape(shape)
        return shape[0] * (shape[1] + 4)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        return self._with_weight(qtensor, np.ascontiguousarray(qtensor.parts["weight"][:, columns]))

    def add_zero_column(self, qtensor: QTensor) -> QTensor:
        """The matrix [N, K + 1]: a last input feature that adds nothing, so its input may set the scale of a token."""
        return self._with_weight(qtensor, np.pad(qtensor.parts["weight"], ((0, 0), (0, 1))))

    def _with_weight(self, qtensor: QTensor, weight: np.ndarray) -> QTensor:
        return QTensor(self.name, weight.shape, {**qtensor.parts, "weight": weight}, qtensor.shared)

    def with_input_absmax(self, qtensor: QTensor, absmax: float) -> QTensor:
        """The tensor with the scale that spans inputs of this magnitude, where activations are static."""
        if not self.static_inputs:
            return qtensor
        shared = {"input_scale": self.scale_of_absmax(np.array([absmax], dtype=np.float32))}
        return QTensor(qtensor.format, qtensor.shape, qtensor.parts, shared)

    def scale_of_absmax(self, absmax: np.ndarray) -> np.ndarray:
        """float32 -> float32: the scale of inputs up to this magnitude"""
        raise NotImplementedError(f"{self.name} has no static activations")

    @abstractmethod
    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32 -> [M, 1] float32: the magnitude that sets each token's scale, if `has_input_scale`

        The magnitude of a matrix in several pieces of columns is the largest of theirs.
        """

    @abstractmethod
    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32, all tokens of one call -> [M, K] float32: the input as the linear rounds it.

        shared   of the weight's QTensor
        """
