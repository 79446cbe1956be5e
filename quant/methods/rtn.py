"""Round to nearest: every weight takes the code its format's own codec gives it."""

from collections.abc import Mapping
from typing import Any

from quant.formats import get_format
from quant.methods.base import Layer, Method
from quant.qtensor import QTensor


class Rtn(Method):
    name = "rtn"
    needs_calibration = False

    def quantize_layer(self, layer: Layer, stats: Mapping[str, Any]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; `stats` is not looked at."""
        return {name: get_format(layer.formats[name]).quantize_ref(weight) for name, weight in layer.weights.items()}
