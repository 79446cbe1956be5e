"""Operands of linears and of attention, by their formats: the narrowest arithmetic that they allow on the CPU."""

from qbench.speed.units import BF16, FP32, INT8, INT16
from quant.formats import Fp8Format, get_format
from quant.kv import KVFormat
from quant.kv.ints import IntChannels, IntGroups

OF_FLOATS = {"f32": FP32, "f16": BF16, "bf16": BF16}


def operands_of_linear(format_name: str, impl: str = "auto") -> str:
    """Those of the weights and inputs of a linear. impl: of the model; "reference": float32 throughout"""
    if impl == "reference":
        return FP32
    return BF16 if isinstance(get_format(format_name), Fp8Format) else OF_FLOATS.get(format_name, INT8)


def operands_of_attention(kv: KVFormat | None, impl: str = "auto") -> str:
    """Those of attention over keys and values, or latents. kv: None for float32"""
    if kv is None or impl == "reference":
        return FP32
    return INT16 if isinstance(kv.keys, (IntGroups, IntChannels)) else BF16
