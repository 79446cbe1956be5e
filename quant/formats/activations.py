"""Formats of linears that round their input, too: int8 codes with a float32 scale for each row of the weight."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from quant.formats.integer_kernels import IntegerFormat


class ActivationFormat(IntegerFormat):
    """A format whose linear computes y = fake_quantize_input(x) @ dequantize(weight).T, in integers where it can.

    rows_stand_alone   whether a row's codes depend on that row alone, so that a matrix may be quantized in pieces
    """

    block_size = 1
    rows_stand_alone: bool = True

    @property
    def bits_per_weight(self) -> float:
        """Codes; the scales add 32 / K, which only size_bytes can know."""
        return 8.0

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Codes and scales. What calibration adds, an input's scale or outliers' weights, only a QTensor can know."""
        self.check_shape(shape)
        return shape[0] * (shape[1] + 4)

    @abstractmethod
    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32, all tokens of one call -> [M, K] float32: what the linear makes of its input.

        shared   of the weight's QTensor
        """
