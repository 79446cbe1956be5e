"""Round to nearest, with one calibrated scale for all inputs of each linear."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quant.formats import ActivationFormat, Format, get_format
from quant.methods.base import Layer, Method
from quant.present import present
from quant.qtensor import QTensor
from quant.source import SharedInfo
from quant.stats import InputStats


@dataclass(frozen=True, slots=True)
class Static(Method):
    """The scale spans the largest input that calibration saw; larger ones saturate."""

    name: ClassVar[str] = "static"
    needs: ClassVar[frozenset[str]] = frozenset({"absmax"})

    def shared(self, fmt: Format, row_size: int) -> tuple[SharedInfo, ...]:
        return static_input_scale(fmt)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        formats = {name: get_format(layer.formats[name]) for name in layer.weights}
        return {
            name: with_input_scale(fmt, fmt.quantize(layer.weights[name]), present(stats[name].absmax))
            for name, fmt in formats.items()
        }


def static_input_scale(fmt: Format) -> tuple[SharedInfo, ...]:
    """The entry of the scale of a linear's inputs, if the format has one that calibration finds."""
    is_static = isinstance(fmt, ActivationFormat) and fmt.static_inputs
    return (SharedInfo("input_scale", (1,), "float32"),) if is_static else ()


def with_input_scale(fmt: Format, qtensor: QTensor, absmax: np.ndarray) -> QTensor:
    """The tensor with the scale that spans static inputs of these magnitudes, absmax [K] float32."""
    return fmt.with_input_absmax(qtensor, absmax.max()) if isinstance(fmt, ActivationFormat) else qtensor
