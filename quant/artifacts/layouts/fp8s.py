"""8-bit floats in compressed-tensors: its format "float-quantized".

part            shape
weight          [N, K] E4M3
weight_scale    [N, 1] float32, or [N / 128, K / 128] of blocks, both rounded up
input_scale     [1] float32         if activations are static
"""

import numpy as np

from quant.artifacts.layouts.base import Part, StoredModule
from quant.artifacts.layouts.eight_bits import SCALE_DTYPES, EightBits, read_scale
from quant.artifacts.layouts.scheme import Scheme, quantization_args
from quant.formats import Format
from quant.formats.fp8 import BLOCK, NAMES, Fp8Format
from quant.json_fields import JsonFields
from quant.qtensor import QTensor
from quant.source import TensorInfo

# How inputs are rounded -> strategy and dynamic of compressed-tensors; "none" has no such args
INPUTS = {"per_token": ("token", True), "static": ("tensor", False), "per_group": ("group", True)}


class Fp8s(EightBits):
    name = "float-quantized"
    formats: tuple[type[Format], ...] = (Fp8Format,)

    @staticmethod
    def scheme(fmt: Fp8Format) -> Scheme:
        weights = quantization_args("float", "block" if fmt.by_block else "channel")
        if fmt.by_block:
            weights["block_structure"] = [BLOCK, BLOCK]
        inputs = None
        if fmt.inputs != "none":
            strategy, dynamic = INPUTS[fmt.inputs]
            group_size = BLOCK if fmt.by_block else None
            inputs = quantization_args("float", strategy, group_size=group_size, dynamic=dynamic)
        return {"weights": weights, "input_activations": inputs, "output_activations": None}

    @staticmethod
    def format_name(weights: JsonFields, inputs: JsonFields | None) -> str | None:
        """The name of the format that QuantizationArgs may mean; None for other schemes."""
        kinds = {value: key for key, value in INPUTS.items()}
        if inputs is None:
            return NAMES["none"]
        kind = kinds.get((inputs.text("strategy") or "", inputs.flag("dynamic", False)))
        return None if kind is None else NAMES[kind]

    @staticmethod
    def parts(fmt: Fp8Format, info: TensorInfo) -> tuple[Part, ...]:
        num_rows, row_size = info.shape
        scale_shape = (-(-num_rows // BLOCK), row_size // BLOCK) if fmt.by_block else (num_rows, 1)
        parts = [
            Part("weight", "F8_E4M3", info.shape),
            Part("weight_scale", "F32", scale_shape, read_too=SCALE_DTYPES),
        ]
        return (*parts, *EightBits.input_scale_parts(info))

    @staticmethod
    def pack(qtensor: QTensor) -> dict[str, np.ndarray]:
        arrays = {**qtensor.parts, **qtensor.shared}
        if qtensor.format == NAMES["per_group"]:
            arrays["weight_scale"] = np.ascontiguousarray(arrays["weight_scale"][::BLOCK])
        return arrays

    @classmethod
    def info(cls, fmt: Fp8Format, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo:
        info = cls.input_scale_info(fmt, shape)
        module.check(cls.parts(fmt, info))
        return info

    @staticmethod
    def unpack(fmt: Fp8Format, module: StoredModule, info: TensorInfo) -> QTensor:
        scale = read_scale(module, "weight_scale")
        if fmt.by_block:
            scale = np.repeat(scale, BLOCK, axis=0)[: info.shape[0]]
        parts = {"weight": module.read("weight"), "weight_scale": scale}
        return QTensor(info.format, info.shape, parts, EightBits.read_input_scale(module, info))
