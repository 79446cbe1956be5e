"""Norms and biases in float32, the only format in which llama.cpp uses them; biases that a file lacks are zeros."""

import logging
from collections.abc import Callable, Mapping

import numpy as np

from quant.formats import dequantize, get_format
from quant.models import ExpectedTensor
from quant.qtensor import QTensor
from quant.source import Source, SourceView, TensorInfo

VECTOR_FORMAT = "f32"


class F32Vectors(SourceView):
    """`source` with every 1-D tensor in float32, exact from any float format; all else untouched."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.tensors = {
            name: _info(info.shape) if len(info.shape) == 1 else info for name, info in source.tensors.items()
        }

    def read(self, name: str) -> QTensor:
        qtensor = super().read(name)
        if qtensor.format == self.tensors[name].format:
            return qtensor
        return get_format(VECTOR_FORMAT).quantize_ref(dequantize(qtensor))


def absent_biases(
    expected: Mapping[str, ExpectedTensor], is_stored: Callable[[str], bool], where: str
) -> dict[str, TensorInfo]:
    """The biases that a file lacks and may lack, by canonical name, with a warning. They are zeros."""
    absent = {name: want for name, want in expected.items() if want.optional and not is_stored(name)}
    if absent:
        others = len(absent) - 1
        logging.getLogger(__name__).warning(
            "%s: %s%s missing: taken as zeros, as in llama.cpp and transformers",
            where,
            next(iter(absent)),
            f" and {others} other biases are" if others > 1 else " and another bias are" if others else " is",
        )
    return {name: _info(want.shape) for name, want in absent.items()}


def zero_vector(info: TensorInfo) -> QTensor:
    return get_format(VECTOR_FORMAT).quantize_ref(np.zeros(info.shape, dtype=np.float32))


def _info(shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(shape, VECTOR_FORMAT, get_format(VECTOR_FORMAT).size_bytes(shape))
