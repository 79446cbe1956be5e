"""Queries and keys rotated, keys and values written to their pages (as 8-bit codes if they hold those), in one launch.

query'[t]       = rotate(query[t])                                                    rope.py
key_cache[s]    = rotate(key[t]), value_cache[s] = value[t]                           s = slots[t], or slots[t, h]
in FP8          = (rotate(key[t]) / key_scale[h]) as a code, saturated; so are values   real = scale * code

A scale is given per tensor or per head. Or it is found per token and head, and written too:

key_scale[s, h] = max |rotate(key[t, h])| / largest code, at least 2**-100

int8 has a scale and a minimum per token and head, in float16: codes -128 to 127 from the least to the greatest.

key_minimum[s, h] = min rotate(key[t, h])
key_scale[s, h]   = (max rotate(key[t, h]) - minimum) / 255, at least 2**-24     real = scale * (code + 128) + minimum
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.fused.rope import check_heads, check_rotation, rotate_ref, written_rows

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WORDS = {E4M3: "e4m3", E5M2: "e5m2", torch.int8: "int8"}  # type of codes -> the kernel's word for it
LARGEST = {E4M3: 448.0, E5M2: 57344.0}  # FP8 type -> its largest code
HALF_MAX = 65504.0  # largest finite float16
SMALLEST_SCALE = 2.0**-100  # found for zeros: any scale does, if it and its inverse are finite
MAX_HEAD_SIZE = 512


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call, and the caches that it writes.

    query, key, value  [T, H, D], [T, G, D], [T, G, E] float16, bfloat16 or float32, the last axis dense
    key_cache          [num_pages, page_size, G, D] of the key's type or codes, dense last axis; value_cache likewise
    positions          [T] int32 or int64, rows of cos and sin
    slots              [T] int32 or int64: slot of each token, -1: nowhere; no two are equal. [T, G]: its slot in each
                       head of keys and values; no two are equal in one head
    cos, sin           [P, R / 2] float32, R <= D
    key_scale          [G] or [1] float32 if the cache is FP8, or [num_pages, page_size, G] to be written, dense; if it
                       is int8, [num_pages, page_size, G, 2] float16 to be written: scale and minimum; value_scale
                       likewise
    raises             TypeError, ValueError (shapes, strides, scales), NotImplementedError (sizes)
    """

    query: Tensor
    key: Tensor
    value: Tensor
    key_cache: Tensor
    value_cache: Tensor
    positions: Tensor
    slots: Tensor
    cos: Tensor
    sin: Tensor
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None
    interleaved: bool = False

    def __post_init__(self) -> None:
        op, query, key, value, cos = "rope_cache", self.query, self.key, self.value, self.cos
        check_rotation(op, self.positions, cos, self.sin, self.slots, len(query), key.shape[1])
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            check_heads(op, name, tensor, len(query), query.device)
        if key.shape[2] != query.shape[2] or value.shape[1] != key.shape[1] or not key.shape[1]:
            got = f"query {list(query.shape)}, key {list(key.shape)} and value {list(value.shape)}"
            raise ValueError(f"{op}: got {got}, expected [T, H, D], [T, G, D] and [T, G, E]")
        if 2 * cos.shape[1] > key.shape[2]:
            raise ValueError(f"{op}: got cos {list(cos.shape)}, expected at most D / 2 = {key.shape[2] // 2} columns")
        if max(key.shape[2], value.shape[2]) > MAX_HEAD_SIZE:
            raise NotImplementedError(
                f"{op}: got heads of {key.shape[2]} and {value.shape[2]}, expected up to {MAX_HEAD_SIZE}"
            )
        for name, new, cache, scale in self.written():
            if cache.dtype not in (new.dtype, *WORDS):
                known = ", ".join(map(str, WORDS))
                raise TypeError(f"{op}: got {name}_cache {cache.dtype}, expected {new.dtype} or one of {known}")
            if cache.dim() != 4 or cache.shape[2:] != new.shape[1:] or cache.shape[:2] != self.key_cache.shape[:2]:
                got = f"{name}_cache {list(cache.shape)}"
                raise ValueError(f"{op}: got {got}, expected [num_pages, page_size, {new.shape[1]}, {new.shape[2]}]")
            if new.stride(2) != 1 or cache.stride(3) != 1 or query.stride(2) != 1:
                raise ValueError(
                    f"{op}: got strides {list(new.stride())} and {list(cache.stride())}, expected 1 in the end"
                )
            if (scale is not None) != (cache.dtype in WORDS):
                raise ValueError(
                    f"{op}: got {name}_cache {cache.dtype} with {name}_scale {scale}, expected one for codes alone"
                )
            if scale is not None:
                check_scale(op, f"{name}_scale", scale, cache)
        scales = [scale is not None and scale.dim() > 2 for scale in (self.key_scale, self.value_scale)]
        if scales[0] != scales[1] or self.key_cache.dtype != self.value_cache.dtype:
            got = f"keys {self.key_cache.dtype} and values {self.value_cache.dtype}"
            raise ValueError(f"{op}: got {got}, expected one type, and scales per token of both or of neither")

    @property
    def has_head_slots(self) -> bool:
        """Whether each head of keys and values has a slot of its own."""
        return self.slots.dim() == 2

    @property
    def has_token_scales(self) -> bool:
        """Whether scales are found per token and head, and written."""
        return self.key_scale is not None and self.key_scale.dim() > 2

    def written(self) -> Iterator[tuple[str, Tensor, Tensor, Tensor | None]]:
        """("key" or "value", the new heads, their cache, its scale)"""
        yield "key", self.key, self.key_cache, self.key_scale
        yield "value", self.value, self.value_cache, self.value_scale

    def empty(self) -> Tensor:
        """query' [T, H, D], dense, to be written"""
        return torch.empty(self.query.shape, dtype=self.query.dtype, device=self.query.device)


def rope_cache_ref(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(query' [T, H, D], key' [T, G, D], value [T, G, E]) float64: the oracle, before anything is rounded."""
    angles = positions, cos, sin, interleaved
    return rotate_ref(query, *angles), rotate_ref(key, *angles), value.double()


def rope_cache(operands: Operands, impl: str | None = None) -> Tensor:
    """query' [T, H, D] in the query's type; writes key' and value into their caches.

    impl  an entry of the table other than the first for the device
    """
    run = implementation("rope_cache", operands.query.device.type, impl)
    rotated = operands.empty()
    if len(rotated):
        run(operands, rotated)
    return rotated


def rope_cache_reference(operands: Operands, rotated: Tensor) -> None:
    """Writes the oracle's result into rotated and the caches: the table's entry "reference"."""
    angles = operands.positions, operands.cos, operands.sin
    heads = operands.query, operands.key, operands.value
    turned, *exact = rope_cache_ref(*heads, *angles, interleaved=operands.interleaved)
    rotated.copy_(turned)
    for (_, _, cache, scale), new in zip(operands.written(), exact, strict=True):
        written = written_rows(cache, operands.slots)
        if scale is not None and cache.dtype == torch.int8:
            pair = scale_and_minimum(new)
            scale[written.places] = pair[written.rows].half()
            new = int8_steps(new, pair).round().nan_to_num(nan=-128.0)
        elif scale is not None:
            factor = scale.double()
            if operands.has_token_scales:
                factor = found_scale(new, cache.dtype)
                scale[written.places] = factor[written.rows].float()
            new = (new / factor[..., None]).clamp(-LARGEST[cache.dtype], LARGEST[cache.dtype])
        codes = new[written.rows].float().to(cache.dtype)
        cache.view(torch.uint8)[written.places] = codes.view(torch.uint8)


def found_scale(new: Tensor, dtype: torch.dtype) -> Tensor:
    """[T, G] of new heads [T, G, D]: the scale that brings the largest magnitude to the largest code; NaN of a head
    that is not finite.
    """
    absmax = new.abs().amax(-1)
    return (absmax / LARGEST[dtype]).clamp(min=SMALLEST_SCALE).where(absmax.isfinite(), torch.nan)


def scale_and_minimum(new: Tensor) -> Tensor:
    """[T, G, 2] float64 of new heads [T, G, D], rounded to float16: the grid of `Operands`; NaN of a head with NaN."""
    minimum = new.amin(-1).clamp(-HALF_MAX, HALF_MAX).half().double()
    scale = ((new.amax(-1) - minimum) / 255).clamp(2.0**-24, HALF_MAX).half().double()
    return torch.stack([scale, minimum], -1)


def int8_steps(new: Tensor, pair: Tensor) -> Tensor:
    """Codes [T, G, D] float64 of new heads, not rounded. pair [T, G, 2]: of each its scale and minimum"""
    return ((new - pair[..., 1:]) / pair[..., :1]).clamp(0, 255) - 128


def check_scale(op: str, name: str, scale: Tensor, cache: Tensor) -> None:
    """cache [num_pages, page_size, G, D]. raises  ValueError"""
    sizes = ([1], [cache.shape[2]], list(cache.shape[:3]))
    is_dense = scale.dim() == 1 or scale.is_contiguous()
    got = f"{name} {scale.dtype} {list(scale.shape)}"
    if cache.dtype == torch.int8:
        pairs = [*cache.shape[:3], 2]
        if scale.dtype != torch.float16 or list(scale.shape) != pairs or not is_dense:
            raise ValueError(f"{op}: got {got}, expected float16 {pairs}, dense")
    elif scale.dtype != torch.float32 or list(scale.shape) not in sizes or not is_dense:
        raise ValueError(f"{op}: got {got}, expected float32 [1] or [{cache.shape[2]}], or {sizes[2]}, dense")
