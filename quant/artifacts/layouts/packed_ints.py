"""Grouped integers in compressed-tensors: its format "pack-quantized".

part                shape
weight_packed       [N, K * bits / 32] int32    as the format packs them
weight_scale        [N, G] float16
weight_zero_point   [N * bits / 32, G] int32    of asymmetric ones: packed like the codes, but along the outputs
weight_shape        [2] int64                   N and K, which packed words do not show
weight_g_idx        [K] int32                   group of each input: in files of versions that knew act-order
"""

import numpy as np

from quant.artifacts.layouts.base import Part, StoredModule, tensor_info
from quant.artifacts.layouts.int_parts import SCALE_DTYPES, half_scale, int_group_format, shared_groups
from quant.artifacts.layouts.scheme import Scheme, quantization_args
from quant.errors import InputError
from quant.formats import Format, IntGroupFormat, W4A4Format
from quant.formats.bits import pack_int32, packed_words, unpack_int32
from quant.json_fields import JsonFields
from quant.qtensor import QTensor
from quant.source import TensorInfo

G_IDX = "weight_g_idx"


class PackedInts:
    name = "pack-quantized"
    mark = "weight_packed"
    formats: tuple[type[Format], ...] = (IntGroupFormat,)

    @staticmethod
    def scheme(fmt: IntGroupFormat) -> Scheme:
        weights = quantization_args("int", "group" if fmt.group_size else "channel", fmt.bits, fmt.group_size)
        weights["symmetric"] = fmt.symmetric
        inputs = quantization_args("int", "token", fmt.bits, dynamic=True) if isinstance(fmt, W4A4Format) else None
        return {"weights": weights, "input_activations": inputs, "output_activations": None}

    @staticmethod
    def format_name(weights: JsonFields, inputs: JsonFields | None) -> str | None:
        """The name of the format that QuantizationArgs may mean; None for other schemes."""
        if inputs is not None:
            return W4A4Format().name
        group = f"g{weights.count('group_size')}" if weights.text("strategy") == "group" else ""
        return f"w{weights.count('num_bits')}{group}{'' if weights.flag('symmetric', True) else '-asym'}"

    @staticmethod
    def parts(fmt: IntGroupFormat, info: TensorInfo) -> tuple[Part, ...]:
        num_rows, row_size = info.shape
        num_groups = fmt.num_groups(row_size)
        parts = [
            Part("weight_packed", "I32", (num_rows, packed_words(row_size, fmt.bits))),
            Part("weight_scale", "F16", (num_rows, num_groups), read_too=SCALE_DTYPES),
            Part("weight_shape", "I64", (2,)),
        ]
        if not fmt.symmetric:
            parts.append(Part("weight_zero_point", "I32", (packed_words(num_rows, fmt.bits), num_groups)))
        if info.has_shared("g_idx"):
            parts.append(Part(G_IDX, "I32", (row_size,)))
        return tuple(parts)

    @staticmethod
    def pack(qtensor: QTensor) -> dict[str, np.ndarray]:
        fmt = int_group_format(qtensor.format)
        arrays = {**qtensor.parts, "weight_shape": np.array(qtensor.shape, dtype=np.int64)}
        if not fmt.symmetric:
            arrays["weight_zero_point"] = pack_int32(np.ascontiguousarray(arrays["weight_zero_point"].T), fmt.bits).T
        return arrays

    @classmethod
    def info(cls, fmt: IntGroupFormat, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo:
        info = tensor_info(fmt, shape)
        module.check(cls.parts(fmt, info))
        stored = tuple(module.read("weight_shape").tolist())
        if stored != shape:
            raise InputError(f"{module.folder}: {module.name} has weight_shape {stored}, config.json says {shape}")
        if G_IDX not in module.parts:
            return info
        module.check([Part(G_IDX, "I32", shape[1:])])
        return tensor_info(fmt, shape, shared_groups(fmt, shape[1], module, G_IDX))

    @staticmethod
    def unpack(fmt: IntGroupFormat, module: StoredModule, info: TensorInfo) -> QTensor:
        parts = {
            "weight_packed": module.read("weight_packed"),
            "weight_scale": half_scale(module.read("weight_scale"), module, "weight_scale"),
        }
        if not fmt.symmetric:
            zero_point = unpack_int32(module.read("weight_zero_point").T, fmt.bits, info.shape[0])  # [G, N]
            parts["weight_zero_point"] = np.ascontiguousarray(zero_point.T)
        shared = {"g_idx": module.read(G_IDX)} if info.has_shared("g_idx") else {}
        return QTensor(info.format, info.shape, parts, shared)
