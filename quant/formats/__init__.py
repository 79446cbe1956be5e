"""Every storage format by name."""

from functools import lru_cache

import numpy as np

from quant.errors import InputError
from quant.formats.activations import ActivationFormat
from quant.formats.base import BlockFormat, Format
from quant.formats.floats import BF16, F16, F32
from quant.formats.int8 import Int8Format
from quant.formats.int_group import IntGroupFormat
from quant.formats.iq4_nl import IQ4_NL
from quant.formats.iq4_xs import IQ4_XS
from quant.formats.llm_int8 import LlmInt8Format
from quant.formats.q2_k import Q2_K
from quant.formats.q3_k import Q3_K
from quant.formats.q4_0 import Q4_0
from quant.formats.q4_1 import Q4_1
from quant.formats.q4_k import Q4_K
from quant.formats.q5_0 import Q5_0
from quant.formats.q5_1 import Q5_1
from quant.formats.q5_k import Q5_K
from quant.formats.q6_k import Q6_K
from quant.formats.q8_0 import Q8_0
from quant.qtensor import QTensor

__all__ = [
    "FORMATS",
    "ActivationFormat",
    "BlockFormat",
    "Format",
    "Int8Format",
    "IntGroupFormat",
    "LlmInt8Format",
    "dequantize",
    "format_of_gguf_type",
    "get_format",
]

BLOCK_FORMATS = (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q4_K, Q5_K, Q6_K, Q3_K, IQ4_NL, IQ4_XS)

# Those that recipes name; get_format also takes every other name of the grammars in int_group and int8.
INT_GROUP_NAMES = ("w8", "w4g128", "w4g128-asym", "w3g128")

INT8_NAMES = ("w8a8", "w8a8-wtensor-atensor")

FORMATS: dict[str, Format] = {
    **{cls.name: cls() for cls in BLOCK_FORMATS},
    **{name: IntGroupFormat.parse(name) for name in INT_GROUP_NAMES},
    **{name: Int8Format.parse(name) for name in INT8_NAMES},
    LlmInt8Format.name: LlmInt8Format(),
}

_BY_GGUF_TYPE = {fmt.gguf_type: fmt for fmt in FORMATS.values() if fmt.gguf_type is not None}


@lru_cache
def get_format(name: str) -> Format:
    """The format of this name.

    raises   InputError for an unknown name
    """
    fmt = FORMATS.get(name) or IntGroupFormat.parse(name) or Int8Format.parse(name)
    if fmt is None:
        raise InputError(
            f"unknown format {name!r}, expected one of {', '.join(FORMATS)}, "
            "or integers as w{2,3,4,8}, g and a group size, -asym: w3g64-asym, or w8a8[-wtensor][-atensor|-astatic]"
        )
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
