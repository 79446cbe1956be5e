"""Precision of the matmuls, by the names that users give."""

from qbench.nearest import nearest
from quant.errors import InputError

FAST = "fast"  # as fast as each format allows: for many tokens, K-quants and f16 may be rounded further
EXACT = "exact"  # weights, keys and values as they are stored, for any number of tokens
FLOAT32 = "float32"  # weights dequantized once, everything in float32: the loss of the format alone
PRECISIONS = (FAST, EXACT, FLOAT32)


def check_compute(name: str) -> None:
    """raises InputError if the name is not one of PRECISIONS"""
    if name == "auto":
        raise InputError(f"compute 'auto' is called {FAST!r} now")
    if name not in PRECISIONS:
        raise InputError(f"unknown compute {name!r}; known: {', '.join(PRECISIONS)}{nearest(name, PRECISIONS)}")
