"""Round to nearest: every weight takes the code its format's own codec gives it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quant.calibration.stats import InputStats
from quant.formats import get_format
from quant.methods.base import Layer, Method
from quant.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class Rtn(Method):
    name: ClassVar[str] = "rtn"

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; `stats` is not looked at."""
        return {name: get_format(layer.formats[name]).quantize(weight) for name, weight in layer.weights.items()}
