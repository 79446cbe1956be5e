"""4-bit floats in compressed-tensors: its formats "nvfp4-pack-quantized" and "mxfp4-pack-quantized".

part                  shape
weight_packed         [N, K / 2] uint8
weight_scale          [N, K / 16] E4M3, or [N, K / 32] uint8 of MXFP4
weight_global_scale   [1] float32        of NVFP4
"""

from dataclasses import dataclass

import numpy as np

from quant.artifacts.layouts.base import Part, StoredModule, tensor_info
from quant.artifacts.layouts.eight_bits import read_scale
from quant.artifacts.layouts.scheme import Scheme, quantization_args
from quant.errors import InputError
from quant.formats import Format
from quant.formats.fp4_linear import Fp4Format, Mxfp4A16, Nvfp4A16
from quant.formats.small_floats import NAN
from quant.json_fields import JsonFields
from quant.qtensor import QTensor
from quant.source import TensorInfo

GLOBAL = "weight_global_scale"


@dataclass(slots=True)
class Fp4s:
    """name         of compressed-tensors
    formats      the one format
    strategy     of its scales
    scale_dtype  of the stored scales
    """

    name: str
    formats: tuple[type[Format], ...]
    strategy: str
    scale_dtype: str
    mark: str = "weight_packed"

    def scheme(self, fmt: Fp4Format) -> Scheme:
        weights = quantization_args("float", self.strategy, bits=4, group_size=fmt.block_size)
        return {"weights": weights, "input_activations": None, "output_activations": None}

    def format_name(self, weights: JsonFields, inputs: JsonFields | None) -> str | None:
        """The name of the format; None for rounded inputs, which are not read here."""
        return None if inputs is not None else self.formats[0].name

    def parts(self, fmt: Fp4Format, info: TensorInfo) -> tuple[Part, ...]:
        num_rows, row_size = info.shape
        parts = [
            Part("weight_packed", "U8", (num_rows, row_size // 2)),
            Part("weight_scale", self.scale_dtype, (num_rows, row_size // fmt.block_size)),
        ]
        if isinstance(fmt, Nvfp4A16):
            parts.append(Part(GLOBAL, "F32", (1,)))
        return tuple(parts)

    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]:
        arrays = dict(qtensor.parts)
        if GLOBAL in arrays:
            arrays[GLOBAL] = arrays[GLOBAL][0]  # [N, 1], the same in every row -> [1]
        return arrays

    def info(self, fmt: Fp4Format, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo:
        info = tensor_info(fmt, shape)
        module.check(self.parts(fmt, info))
        return info

    def unpack(self, fmt: Fp4Format, module: StoredModule, info: TensorInfo) -> QTensor:
        parts = {name: module.read(name) for name in ("weight_packed", "weight_scale")}
        if isinstance(fmt, Nvfp4A16):
            if (parts["weight_scale"] & NAN == NAN).any():
                raise InputError(f"{module.folder}: '{module.name}.weight_scale' holds a scale that is no number")
            scale = read_scale(module, GLOBAL)
            parts[GLOBAL] = np.ascontiguousarray(np.broadcast_to(scale, (info.shape[0], 1)))
        return QTensor(info.format, info.shape, parts)


NVFP4S = Fp4s("nvfp4-pack-quantized", (Nvfp4A16,), "tensor_group", "F8_E4M3")
MXFP4S = Fp4s("mxfp4-pack-quantized", (Mxfp4A16,), "group", "U8")
