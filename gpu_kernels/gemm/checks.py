"""Whether the operands of a product fit together, before any byte is touched."""

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
HALVES = (torch.float16, torch.bfloat16)


def check_operands(op: str, *operands: tuple[str, Tensor | None, list[int], tuple[torch.dtype, ...]]) -> None:
    """Every operand that is there has one of its dtypes, its shape, and is on the device of the first.

    operands  (name, tensor, shape, dtypes) of each; the first is always there
    raises    TypeError (dtypes), ValueError (shapes, devices)
    """
    first_name, first, *_ = operands[0]
    assert first is not None
    for name, tensor, shape, dtypes in operands:
        if tensor is None:
            continue
        if tensor.dtype not in dtypes:
            raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")
        if list(tensor.shape) != shape:
            raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected {shape}")
        if tensor.device != first.device:
            got = f"{name} on {tensor.device} and {first_name} on {first.device}"
            raise ValueError(f"{op}: got {got}, expected one device")


def check_matrix(op: str, name: str, tensor: Tensor, num_columns: int) -> None:
    """raises  ValueError if the tensor is no matrix [rows, num_columns]"""
    if tensor.dim() != 2 or tensor.shape[1] != num_columns:
        raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected [rows, {num_columns}]")
