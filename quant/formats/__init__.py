"""Every storage format by name."""

import numpy as np

from quant.errors import InputError
from quant.formats.base import BlockFormat, Format
from quant.formats.floats import BF16, F16, F32
from quant.formats.int_group import IntGroupFormat
from quant.formats.q4_0 import Q4_0
from quant.formats.q4_k import Q4_K
from quant.formats.q5_0 import Q5_0
from quant.formats.q5_1 import Q5_1
from quant.formats.q5_k import Q5_K
from quant.formats.q6_k import Q6_K
from quant.formats.q8_0 import Q8_0
from quant.qtensor import QTensor

__all__ = ["FORMATS", "BlockFormat", "Format", "IntGroupFormat", "dequantize", "format_of_gguf_type", "get_format"]

BLOCK_FORMATS = (F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K)

# name, bits, group_size (None: one scale per output channel)
INT_GROUP_ROWS = (
    ("w8", 8, None),
    ("w4g128", 4, 128),
    ("w3g128", 3, 128),
)

FORMATS: dict[str, Format] = {
    **{cls.name: cls() for cls in BLOCK_FORMATS},
    **{row[0]: IntGroupFormat(*row) for row in INT_GROUP_ROWS},
}

_BY_GGUF_TYPE = {fmt.gguf_type: fmt for fmt in FORMATS.values() if fmt.gguf_type is not None}


def get_format(name: str) -> Format:
    """The format of this name.

    raises   InputError for an unknown name
    """
    if name not in FORMATS:
        raise InputError(f"unknown format {name!r}, expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of_gguf_type(gguf_type: int) -> Format:
    """The format of a ggml_type number.

    raises   InputError for a type that is not implemented
    """
    if gguf_type not in _BY_GGUF_TYPE:
        known = ", ".join(f"{fmt.name} ({number})" for number, fmt in _BY_GGUF_TYPE.items())
        raise InputError(f"tensor of GGUF type {gguf_type}, supported are {known}")
    return _BY_GGUF_TYPE[gguf_type]


def dequantize(qtensor: QTensor) -> np.ndarray:
    """float32 of the tensor's logical shape, by its format's reference codec."""
    return get_format(qtensor.format).dequantize_ref(qtensor)
