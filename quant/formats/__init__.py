"""Every storage format by name.

A file of this package holds one family of formats. Importing it defines the classes, which registers block formats.
"""

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from quant.errors import InputError
from quant.formats.base import BlockFormat, Format
from quant.formats.codes import Codes
from quant.formats.fp4_linear import TURNED_FP4_FORMATS, Fp4Format, Mxfp4A16, Nvfp4A16, TurnedFp4
from quant.formats.fp8 import FP8_FORMATS, Fp8Format
from quant.formats.int8 import Int8Format
from quant.formats.int_group import IntGroupFormat
from quant.formats.integer_format import ActivationFormat
from quant.formats.llm_int8 import LlmInt8Format
from quant.formats.trellis import TrellisFormat
from quant.formats.w4a4 import W4A4Format
from quant.present import present
from quant.qtensor import QTensor

__all__ = [
    "BLOCK_FORMATS",
    "FORMATS",
    "ActivationFormat",
    "BlockFormat",
    "Codes",
    "Format",
    "Fp4Format",
    "Fp8Format",
    "Int8Format",
    "IntGroupFormat",
    "LlmInt8Format",
    "TrellisFormat",
    "TurnedFp4",
    "W4A4Format",
    "block_format",
    "dequantize",
    "format_of_gguf_type",
    "get_format",
]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)

BLOCK_FORMATS = {
    fmt.name: fmt() for fmt in sorted(BlockFormat.registered.values(), key=lambda fmt: present(fmt.gguf_type))
}

# Those that recipes name; get_format also takes every other name of the grammars in int_group, int8 and trellis.
INT_GROUP_NAMES = ("w8", "w4g128", "w4g128-asym", "w3g128")

INT8_NAMES = ("w8a8", "w8a8-wtensor-atensor")

FORMATS: dict[str, Format] = {
    **BLOCK_FORMATS,
    **{name: present(IntGroupFormat.parse(name)) for name in INT_GROUP_NAMES},
    **{name: present(Int8Format.parse(name)) for name in INT8_NAMES},
    LlmInt8Format.name: LlmInt8Format(),
    "w4a4": W4A4Format(),
    **FP8_FORMATS,
    Nvfp4A16.name: Nvfp4A16(),
    Mxfp4A16.name: Mxfp4A16(),
    **TURNED_FP4_FORMATS,
}

_BY_GGUF_TYPE = {fmt.gguf_type: fmt for fmt in BLOCK_FORMATS.values()}


@lru_cache
def get_format(name: str) -> Format:
    """The format of this name.

    raises   InputError for an unknown name
    """
    fmt = FORMATS.get(name) or IntGroupFormat.parse(name) or Int8Format.parse(name) or TrellisFormat.parse(name)
    if fmt is None:
        raise InputError(
            f"unknown format {name!r}, expected one of {', '.join(FORMATS)}, "
            "or integers as w{2,3,4,8}, g and a group size, -asym: w3g64-asym, or w8a8[-wtensor][-atensor|-astatic], "
            "or trellis-w{1,2,3,4}"
        )
    return fmt


def block_format(name: str) -> BlockFormat:
    """The format of this name, which is one of blocks."""
    fmt = get_format(name)
    assert isinstance(fmt, BlockFormat)
    return fmt


def format_of_gguf_type(gguf_type: int) -> Format:
    """The format of a ggml_type number.

    raises   InputError for a type that is not implemented
    """
    if gguf_type not in _BY_GGUF_TYPE:
        known = ", ".join(f"{fmt.name} ({number})" for number, fmt in _BY_GGUF_TYPE.items())
        raise InputError(f"tensor of GGUF type {gguf_type}, supported are {known}")
    return _BY_GGUF_TYPE[gguf_type]


def dequantize(qtensor: QTensor) -> np.ndarray:
    """float32 of the tensor's logical shape."""
    return get_format(qtensor.format).dequantize(qtensor)
