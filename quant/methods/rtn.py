"""Round to nearest: every weight takes the code its format's own codec gives it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quant.formats import get_format
from quant.methods.base import Layer, Method, check_effort
from quant.qtensor import QTensor
from quant.stats import InputStats


@dataclass(frozen=True, slots=True)
class Rtn(Method):
    """effort   "fast", or "best" for a longer search of the formats that search"""

    effort: str = "fast"

    name: ClassVar[str] = "rtn"

    def __post_init__(self) -> None:
        check_effort(self.effort)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; `stats` is not looked at."""
        return {
            name: get_format(layer.formats[name]).quantize(weight, effort=self.effort)
            for name, weight in layer.weights.items()
        }
