"""Scheme: how a config group of compressed-tensors quantizes its linears."""

from typing import TypedDict


class QuantizationArgs(TypedDict):
    """How one kind of tensor is quantized; group_size: None if there are no groups"""

    num_bits: int
    type: str
    symmetric: bool
    strategy: str
    group_size: int | None
    dynamic: bool


class Scheme(TypedDict):
    """None: not quantized"""

    weights: QuantizationArgs
    input_activations: QuantizationArgs | None
    output_activations: QuantizationArgs | None
