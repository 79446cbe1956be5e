"""A Source whose norms are float32, the only format in which llama.cpp multiplies by them."""

from quant.formats import dequantize, get_format
from quant.qtensor import QTensor
from quant.source import Source, SourceView, TensorInfo

VECTOR_FORMAT = "f32"


class F32Vectors(SourceView):
    """`source` with every 1-D tensor in float32, exact from any float format; all else untouched."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.tensors = {name: _vector(info) if len(info.shape) == 1 else info for name, info in source.tensors.items()}

    def read(self, name: str) -> QTensor:
        qtensor = super().read(name)
        if qtensor.format == self.tensors[name].format:
            return qtensor
        return get_format(VECTOR_FORMAT).quantize_ref(dequantize(qtensor))


def _vector(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.shape, VECTOR_FORMAT, get_format(VECTOR_FORMAT).size_bytes(info.shape))
