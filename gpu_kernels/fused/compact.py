"""Kept slots of each key-value head moved to the front, in place: the pages behind them hold no token then.

    key_cache[slot i] = key_cache[slot keep[b, g, i]], value_cache likewise         for i < n if keep[b, g, i] >= 0

Slot s of a sequence is token s % page_size of page block_table[b, s // page_size]. Bits are moved as they are. Slots
rise, so that no slot is written before it has been read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # a type of as many bytes, which every operation knows


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call, and the caches that it writes.

    key_cache    [num_pages, page_size, G, D] of 1, 2 or 4 bytes per number, dense last axis; value_cache the same
    block_table  [B, P] int32, of which the entries up to the largest kept slot are read
    keep         [B, G, n] int32, dense, rising from 0 to P * page_size - 1; -1 at the end: the head keeps fewer
    raises       TypeError (dtypes), ValueError (shapes, strides, devices)
    """

    key_cache: Tensor
    value_cache: Tensor
    block_table: Tensor
    keep: Tensor

    def __post_init__(self) -> None:
        keys, values, table, keep = self.key_cache, self.value_cache, self.block_table, self.keep
        if keys.dtype != values.dtype or keys.itemsize not in INTEGERS:
            raise TypeError(
                f"compact: got caches of {keys.dtype} and {values.dtype}, expected one type of 1 to 4 bytes"
            )
        for name, tensor in (("block_table", table), ("keep", keep)):
            if tensor.dtype != torch.int32:
                raise TypeError(f"compact: got {name} {tensor.dtype}, expected torch.int32")
            if tensor.device != keys.device:
                raise ValueError(f"compact: got {name} on {tensor.device}, expected {keys.device} as the caches")
        if keys.dim() != 4 or values.shape != keys.shape or values.device != keys.device:
            got = f"caches {list(keys.shape)} on {keys.device} and {list(values.shape)} on {values.device}"
            raise ValueError(f"compact: got {got}, expected both [num_pages, page_size, G, D]")
        if keys.stride(3) != 1 or values.stride(3) != 1 or not keep.is_contiguous():
            strides = [list(tensor.stride()) for tensor in (keys, values, keep)]
            raise ValueError(f"compact: got strides {strides} of caches and keep, expected dense last axes and keep")
        if table.dim() != 2 or keep.dim() != 3 or list(keep.shape[:2]) != [len(table), keys.shape[2]]:
            got = f"block_table {list(table.shape)} and keep {list(keep.shape)}"
            raise ValueError(f"compact: got {got}, expected [B, P] and [B, {keys.shape[2]}, n]")

    def integers(self) -> tuple[Tensor, Tensor]:
        """(key_cache, value_cache) as integers of their size"""
        integer = INTEGERS[self.key_cache.itemsize]
        return self.key_cache.view(integer), self.value_cache.view(integer)


def compact_ref(cache: Tensor, block_table: Tensor, keep: Tensor) -> Tensor:
    """A copy of the cache with the kept slots in front, slot by slot: the oracle."""
    moved, page_size = cache.clone(), cache.shape[1]
    for b, g in torch.cartesian_prod(torch.arange(keep.shape[0]), torch.arange(keep.shape[1])).tolist():
        for to, slot in enumerate(keep[b, g].tolist()):
            if slot >= 0:
                source = cache[block_table[b, slot // page_size], slot % page_size, g]
                moved[block_table[b, to // page_size], to % page_size, g] = source
    return moved


def compact(operands: Operands, impl: str | None = None) -> None:
    """Moves the kept slots.

    impl  an entry of the table other than the first for the device
    """
    run = implementation("compact", operands.keep.device.type, impl)
    if operands.keep.numel():
        run(operands)


def compact_reference(operands: Operands) -> None:
    """Writes the oracle's result: the table's entry "reference"."""
    for cache in operands.integers():
        cache.copy_(compact_ref(cache, operands.block_table, operands.keep))
