"""Every quantization method by name."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from quant.errors import InputError
from quant.methods.awq import Awq
from quant.methods.base import Layer, Method
from quant.methods.gptq import Gptq
from quant.methods.hqq import Hqq
from quant.methods.imatrix import Imatrix
from quant.methods.llm_int8 import LlmInt8
from quant.methods.rtn import Rtn
from quant.methods.smoothquant import SmoothQuant
from quant.methods.static import Static
from quant.methods.trellis import Trellis

__all__ = ["METHODS", "Layer", "Method", "Rtn", "make_method"]

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Rtn, Static, Imatrix, SmoothQuant, Awq, LlmInt8, Gptq, Hqq, Trellis)
}


def make_method(name: str, options: Mapping[str, Any]) -> Method:
    """The method of this name with these options.

    raises   InputError for an unknown name, an unknown option or a value that the method refuses
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}, expected one of {', '.join(METHODS)}")
    known = [field.name for field in fields(METHODS[name])]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise InputError(f"method {name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return METHODS[name](**options)
