"""How a model multiplies, by the names that users give."""

from qbench.nearest import nearest
from quant.errors import InputError

AUTO = "auto"  # as fast as each format allows: for many tokens, K-quants and f16 may be rounded further
EXACT = "exact"  # weights as they are stored, whatever the number of tokens
FLOAT32 = "float32"  # weights dequantized once, everything in float32: what a format loses by itself
PRODUCTS = (AUTO, EXACT, FLOAT32)


def check_products(name: str) -> None:
    """raises InputError for a name that is none of PRODUCTS"""
    if name not in PRODUCTS:
        raise InputError(f"products {name!r} are unknown; known: {', '.join(PRODUCTS)}{nearest(name, PRODUCTS)}")
