"""Round to nearest with an importance matrix: errors count as much as the inputs that meet them are large."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quant.errors import InputError
from quant.formats import get_format
from quant.methods.base import Layer, Method, check_effort
from quant.qtensor import QTensor
from quant.stats import InputStats


@dataclass(frozen=True, slots=True)
class Imatrix(Method):
    """effort   "fast", or "best" for a longer search

    An embedding that is the head, too, is rounded without importance: that of the head's inputs takes digits from
    features which the embedding's rows, the model's own input, need as much as any. On ref:llama the median divergence
    is above that of plain rounding with it and below without it, in every mix. (llama.cpp's tool leaves the output
    out, too. GPTQ weighs such a table all the same: there, its feedback gains more at the head than the embedding
    loses.)

    source   llama.cpp's imatrix tool: the importance of an input feature is the mean of its square
    """

    effort: str = "fast"

    name: ClassVar[str] = "imatrix"
    needs: ClassVar[frozenset[str]] = frozenset({"imatrix"})
    weighs_tied_tables: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_effort(self.effort)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; formats that search nothing round as they always do.

        raises   InputError naming the weight that has no statistics
        """
        return {name: self._quantize(name, layer, stats) for name in layer.weights}

    def _quantize(self, name: str, layer: Layer, stats: Mapping[str, InputStats]) -> QTensor:
        if name not in stats or stats[name].num_tokens == 0:
            raise InputError(f"{name}: no calibration token reached it, so it has no importance; calibrate on more")
        importance = stats[name].importance
        return get_format(layer.formats[name]).quantize(layer.weights[name], importance=importance, effort=self.effort)
