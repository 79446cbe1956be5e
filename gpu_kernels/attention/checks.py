"""Common code for the operands of the attention ops: checks, all before any byte is touched, and room for the
results.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

MAX_QUERIES = 16  # of a sequence, in decode


def check_dtype(op: str, name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in dtypes:
        raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")


def check_shape(op: str, name: str, tensor: Tensor, shape: list[int | None], meaning: str) -> None:
    """None in `shape` takes any size; `meaning` is the shape as a person reads it."""
    sizes = list(tensor.shape)
    if len(sizes) != len(shape) or any(want not in (None, got) for got, want in zip(sizes, shape, strict=True)):
        wanted = [letter if want is None else want for letter, want in zip(meaning.split(), shape, strict=True)]
        raise ValueError(f"{op}: got {name} {sizes}, expected [{', '.join(map(str, wanted))}]")


def check_one_device(op: str, tensors: Mapping[str, Tensor | None]) -> None:
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


def check_decode(op: str, num_queries: int, num_kv_splits: int | None) -> None:
    if not 1 <= num_queries <= MAX_QUERIES:
        raise NotImplementedError(f"{op}: got {num_queries} new tokens a sequence, expected 1 to {MAX_QUERIES}")
    if num_kv_splits is not None and num_kv_splits < 1:
        raise ValueError(f"{op}: got num_kv_splits {num_kv_splits}, expected at least 1")


def check_sequences(op: str, name: str, rows: Tensor, bounds: Tensor, batch: int) -> None:
    """`bounds` [B + 1] int32 of the sequences in `rows`. Its values are not checked: that would wait for the GPU."""
    check_dtype(op, name, bounds, (torch.int32,))
    check_shape(op, name, bounds, [batch + 1], "B+1")
    check_one_device(op, {"query": rows, name: bounds})
    if not bounds.is_contiguous():
        raise ValueError(f"{op}: got {name} with strides {list(bounds.stride())}, expected it dense")


def empty_results(query: Tensor, value_size: int) -> tuple[Tensor, Tensor]:
    """(out [..., H, value_size] in the query's dtype, lse [..., H] float32) for query [..., H, D], to be written"""
    rows = query.shape[:-1]
    return query.new_empty(*rows, value_size), query.new_empty(rows, dtype=torch.float32)
