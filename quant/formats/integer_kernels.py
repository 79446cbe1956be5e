"""IntegerFormat: formats of matrices whose integer codes the compiled kernels round, if they are installed."""

from abc import abstractmethod
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
