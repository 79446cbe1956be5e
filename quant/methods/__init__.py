"""Every quantization method by name."""

from quant.errors import InputError
from quant.methods.base import Layer, Method
from quant.methods.rtn import Rtn

__all__ = ["METHODS", "Layer", "Method", "get_method"]

METHODS: dict[str, Method] = {method.name: method for method in (Rtn(),)}


def get_method(name: str) -> Method:
    """The method of this name.

    raises   InputError for an unknown name
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}, expected one of {', '.join(METHODS)}")
    return METHODS[name]
