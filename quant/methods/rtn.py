"""Round to nearest: every weight takes the code its format's own codec gives it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.formats import get_format
from quant.methods.base import Layer, Method
from quant.qtensor import QTensor


class Rtn(Method):
    name = "rtn"
    needs_calibration = False

    def quantize(self, weight: np.ndarray, format_name: str) -> QTensor:
        """weight [..., K] float32 -> QTensor of the same shape"""
        return get_format(format_name).quantize_ref(weight)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, Any]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; `stats` is not looked at."""
        return {name: self.quantize(weight, layer.formats[name]) for name, weight in layer.weights.items()}
