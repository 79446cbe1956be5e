"""Checks that the attention ops share: every one before any byte is touched."""

import torch
from torch import Tensor

INDEX_DTYPES = (torch.int32,)


def check_dtype(op: str, name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in dtypes:
        raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")


def check_shape(op: str, name: str, tensor: Tensor, shape: list[int | None], meaning: str) -> None:
    """None in `shape` takes any size; `meaning` is the shape as a person reads it."""
    sizes = list(tensor.shape)
    if len(sizes) != len(shape) or any(want not in (None, got) for got, want in zip(sizes, shape, strict=True)):
        wanted = [letter if want is None else want for letter, want in zip(meaning.split(), shape, strict=True)]
        raise ValueError(f"{op}: got {name} {sizes}, expected [{', '.join(map(str, wanted))}]")


def check_one_device(op: str, tensors: dict[str, Tensor | None]) -> None:
    (first_name, first), *others = [(name, tensor) for name, tensor in tensors.items() if tensor is not None]
    for name, tensor in others:
        if tensor.device != first.device:
            got = f"{name} on {tensor.device} and {first_name} on {first.device}"
            raise ValueError(f"{op}: got {got}, expected one device")


def check_rows(op: str, tensors: dict[str, Tensor]) -> None:
    """The last axis is read 16 bytes at a time: it must be dense, and every other step a multiple of 16 bytes."""
    for name, tensor in tensors.items():
        steps = [step * tensor.element_size() for step in tensor.stride()[:-1]]
        if tensor.stride(-1) != 1 or any(step % 16 for step in steps):
            got = f"strides {list(tensor.stride())} of {tensor.dtype}"
            raise ValueError(f"{op}: got {name} with {got}, expected a dense last axis and rows 16-byte aligned")


def check_supported(op: str, name: str, got: object, supported: tuple) -> None:
    if got not in supported:
        raise NotImplementedError(f"{op}: got {name} {got}, expected one of {[str(each) for each in supported]}")
