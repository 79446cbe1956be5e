"""W8A8 in compressed-tensors: its format "int-quantized".

part            shape
weight          [N, K] int8
weight_scale    [N, 1] float32, or [1] if one scale holds for the whole weight
input_scale     [1] float32         if activations are static
"""

import numpy as np

from quant.artifacts.layouts.base import Part, StoredModule
from quant.artifacts.layouts.eight_bits import SCALE_DTYPES, EightBits, read_scale
from quant.artifacts.layouts.scheme import Scheme, quantization_args
from quant.formats import Format, get_format
from quant.formats.int8 import Int8Format
from quant.json_fields import JsonFields
from quant.qtensor import QTensor
from quant.source import TensorInfo

# How inputs are rounded -> strategy and dynamic of compressed-tensors
INPUTS = {"per_token": ("token", True), "per_tensor": ("tensor", True), "static": ("tensor", False)}


class Int8s(EightBits):
    name = "int-quantized"
    formats: tuple[type[Format], ...] = (Int8Format,)

    @staticmethod
    def scheme(fmt: Int8Format) -> Scheme:
        strategy, dynamic = INPUTS[fmt.inputs]
        return {
            "weights": quantization_args("int", "tensor" if fmt.per_tensor_weight else "channel"),
            "input_activations": quantization_args("int", strategy, dynamic=dynamic),
            "output_activations": None,
        }

    @staticmethod
    def format_name(weights: JsonFields, inputs: JsonFields | None) -> str | None:
        """The name of the format that QuantizationArgs may mean; None for other schemes."""
        kinds = {value: key for key, value in INPUTS.items()}
        kind = None if inputs is None else kinds.get((inputs.text("strategy") or "", inputs.flag("dynamic", False)))
        if kind is None:
            return None
        return Int8Format(weights.text("strategy") == "tensor", kind).name

    @staticmethod
    def parts(fmt: Int8Format, info: TensorInfo) -> tuple[Part, ...]:
        scale_shape = (1,) if fmt.per_tensor_weight else (info.shape[0], 1)
        parts = [Part("weight", "I8", info.shape), Part("weight_scale", "F32", scale_shape, read_too=SCALE_DTYPES)]
        return (*parts, *EightBits.input_scale_parts(info))

    @staticmethod
    def pack(qtensor: QTensor) -> dict[str, np.ndarray]:
        arrays = {**qtensor.parts, **qtensor.shared}
        fmt = get_format(qtensor.format)
        if isinstance(fmt, Int8Format) and fmt.per_tensor_weight:
            arrays["weight_scale"] = arrays["weight_scale"][0]  # [N, 1], the same in every row -> [1]
        return arrays

    @classmethod
    def info(cls, fmt: Int8Format, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo:
        info = cls.input_scale_info(fmt, shape)
        module.check(cls.parts(fmt, info))
        return info

    @staticmethod
    def unpack(fmt: Int8Format, module: StoredModule, info: TensorInfo) -> QTensor:
        scale = read_scale(module, "weight_scale")
        parts = {
            "weight": module.read("weight"),
            "weight_scale": np.ascontiguousarray(np.broadcast_to(scale.reshape(-1, 1), (info.shape[0], 1))),
        }
        return QTensor(info.format, info.shape, parts, EightBits.read_input_scale(module, info))
