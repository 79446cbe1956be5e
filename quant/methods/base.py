"""Method: how the weights of one decoder layer are rounded."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quant.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class Layer:
    """What is quantized at one time: a decoder layer's linears, or any other set of tensors."""

    weights: Mapping[str, np.ndarray]  # canonical name -> [..., K] float32
    formats: Mapping[str, str]  # canonical name -> format name


class Method(ABC):
    """An algorithm from float weights to a format's codes: a pure function of weights and statistics."""

    name: ClassVar[str]
    needs_calibration: ClassVar[bool]

    @abstractmethod
    def quantize_layer(self, layer: Layer, stats: Mapping[str, Any]) -> dict[str, QTensor]:
        """Every weight of the layer in its format.

        stats   canonical name -> calibration statistics of that linear's input; empty without calibration
        """
