"""Scheme: how a config group of compressed-tensors quantizes its linears."""

from typing import NotRequired, TypedDict


class QuantizationArgs(TypedDict):
    """How one kind of tensor is quantized.

    group_size        None if there are no groups
    block_structure   rows and columns of a block that shares a scale, if the strategy is "block"
    """

    num_bits: int
    type: str
    symmetric: bool
    strategy: str
    group_size: int | None
    dynamic: bool
    block_structure: NotRequired[list[int]]


class Scheme(TypedDict):
    """None: not quantized"""

    weights: QuantizationArgs
    input_activations: QuantizationArgs | None
    output_activations: QuantizationArgs | None


def quantization_args(
    kind: str, strategy: str, bits: int = 8, group_size: int | None = None, dynamic: bool = False
) -> QuantizationArgs:
    """kind: "int" or "float" """
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": True,
        "strategy": strategy,
        "group_size": group_size,
        "dynamic": dynamic,
    }
