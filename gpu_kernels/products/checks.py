"""Whether the operands of a product fit together, before any byte is touched."""

from collections.abc import Iterable

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
HALVES = (torch.float16, torch.bfloat16)


def check_operands(
    op: str, device: torch.device, operands: Iterable[tuple[str, Tensor | None, list[int], tuple[torch.dtype, ...]]]
) -> None:
    """Every operand that is there has one of its dtypes, its shape, and is on the device.

    operands  (name, tensor, shape, dtypes) of each
    raises    TypeError (dtypes), ValueError (shapes, devices)
    """
    for name, tensor, shape, dtypes in operands:
        if tensor is None:
            continue
        if tensor.dtype not in dtypes:
            raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")
        if list(tensor.shape) != shape:
            raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected {shape}")
        if tensor.device != device:
            raise ValueError(f"{op}: got {name} on {tensor.device} and x on {device}, expected one device")


def check_matrix(op: str, name: str, tensor: Tensor, num_columns: int) -> None:
    """raises  ValueError if the tensor is no matrix [rows, num_columns]"""
    if tensor.dim() != 2 or tensor.shape[1] != num_columns:
        raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected [rows, {num_columns}]")
