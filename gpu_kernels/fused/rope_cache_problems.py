"""Problems on which the rotation with its cache write is checked, compiled and timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.fused.rope import Written, rotation_error, written_rows
from gpu_kernels.fused.rope_cache import (
    E4M3,
    E5M2,
    LARGEST,
    Operands,
    found_scale,
    rope_cache,
    rope_cache_ref,
    scale_and_minimum,
)
from gpu_kernels.fused.rope_cache_triton import launches
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

PAGE_SIZE = 16
SENTINEL = 80.0  # content of the cache at slots without a write: a number of every type


@dataclass(frozen=True, slots=True)
class Sizes:
    T: int
    H: int
    G: int
    D: int
    E: int
    R: int  # rotated features
    dtype: torch.dtype = torch.float16
    fp8: bool = False
    interleaved: bool = False
    e5m2: bool = False
    scales: int = 1  # 1: per tensor, G: per head, 0: found per token and head
    int8: bool = False  # found per token and head
    head_slots: bool = False

    def __str__(self) -> str:
        heads = f"T={self.T} H={self.H} G={self.G} D={self.D} E={self.E} R={self.R}"
        forms = {"fp8 cache": self.fp8, "e5m2": self.e5m2, "int8 cache": self.int8}
        forms |= {"per head": self.fp8 and self.scales > 1}
        forms |= {"per token": self.has_token_scales, "interleaved": self.interleaved}
        forms |= {"slots per head": self.head_slots}
        return " ".join([heads, dtype_name(self.dtype), *(form for form, holds in forms.items() if holds)])

    @property
    def has_token_scales(self) -> bool:
        return self.int8 or (self.fp8 and self.scales == 0)

    @property
    def cache_dtype(self) -> torch.dtype:
        if self.int8:
            return torch.int8
        return (E5M2 if self.e5m2 else E4M3) if self.fp8 else self.dtype


LLAMA = partial(Sizes, H=32, G=8, D=128, E=128, R=128, dtype=torch.bfloat16)
TIMED = [LLAMA(T, fp8=fp8) for T in (4096, 128) for fp8 in (False, True)]
TIMED += [LLAMA(T, fp8=True, scales=0) for T in (4096, 128)] + [LLAMA(T, int8=True) for T in (4096, 128)]
ODD = [
    Sizes(1, 1, 1, 2, 1, 2),
    Sizes(5, 3, 1, 63, 31, 62, dtype=torch.float32),
    Sizes(5, 18, 17, 16, 16, 16, fp8=True, scales=17),
    Sizes(3, 4, 2, 24, 8, 6, interleaved=True),
    Sizes(3, 4, 2, 24, 8, 24, interleaved=True, fp8=True),
    Sizes(5, 18, 17, 16, 16, 16, head_slots=True),
    Sizes(3, 8, 2, 64, 64, 64, fp8=True, scales=2, head_slots=True),
    Sizes(5, 3, 1, 63, 31, 62, fp8=True, scales=0),
    Sizes(5, 18, 17, 16, 16, 16, fp8=True, e5m2=True, scales=0, head_slots=True),
    Sizes(3, 4, 2, 24, 8, 6, fp8=True, e5m2=True, interleaved=True),
    Sizes(5, 3, 1, 63, 31, 62, int8=True),
    Sizes(5, 18, 17, 16, 16, 16, int8=True, head_slots=True),
    Sizes(3, 4, 2, 24, 8, 6, int8=True, interleaved=True, dtype=torch.float32),
]


def problems() -> list[Problem]:
    return [_problem(sizes, is_timed=True) for sizes in TIMED] + [_problem(sizes) for sizes in ODD]


def _problem(sizes: Sizes, is_timed: bool = False) -> Problem:
    item, cached = sizes.dtype.itemsize, sizes.cache_dtype.itemsize
    num_bytes = 2 * item * sizes.H * sizes.D  # query, rotated
    num_bytes += (item + cached) * sizes.G * (sizes.D + sizes.E)  # key, value, and in their caches
    num_bytes += 2 * 4 * sizes.R // 2 + 2 * 8  # a row of cos and of sin, position, slot
    num_bytes += 2 * 4 * sizes.G if sizes.has_token_scales else 0
    return Problem(
        op=Op(
            "rope_cache",
            Unconfigured(partial(_call, sizes.interleaved), partial(_launches, sizes.interleaved)),
            partial(_reference, sizes.interleaved),
        ),
        label=str(sizes),
        sizes={name: getattr(sizes, name) for name in "THGDER"} | {"form": str(sizes)},
        operands=partial(_operands, sizes),
        agrees=agrees,
        num_bytes=num_bytes * sizes.T,
        ops=3 * sizes.T * (sizes.H + sizes.G) * sizes.R,  # two products and a sum a feature
        bound="bandwidth",
        peers={"torch chain": partial(_chain, sizes.interleaved)},
        is_timed=is_timed,
    )


def _operands(sizes: Sizes, device: str) -> dict[str, Any]:
    """Slots in no order, one token without, pages that no token names full of the sentinel; angles of Llama."""
    draw = Draw(device)
    T, G, last = sizes.T, sizes.G, sizes.D + sizes.E
    both = draw.normal(T, G, last, dtype=sizes.dtype)
    num_pages = T // PAGE_SIZE + 2
    order = torch.Generator().manual_seed(0)
    rows = [torch.randperm(num_pages * PAGE_SIZE, generator=order)[:T] for _ in range(G if sizes.head_slots else 1)]
    slots = (torch.stack(rows, dim=1) if sizes.head_slots else rows[0]).to(device)  # [T, G] or [T]
    if T > 1 and device != "meta":
        slots[T // 2] = -1
    if sizes.head_slots and device != "meta":
        slots[0, 0] = -1  # of one head alone
    pages = [torch.full((num_pages, PAGE_SIZE, G, size), SENTINEL, device=device) for size in (sizes.D, sizes.E)]
    frequencies = 10000.0 ** -(torch.arange(0, sizes.R, 2, device=device) / sizes.R)
    angles = torch.outer(torch.arange(2 * T, device=device), frequencies)  # [P, R / 2]

    def scale() -> Tensor | None:
        if sizes.int8:
            return torch.full((num_pages, PAGE_SIZE, G, 2), SENTINEL, dtype=torch.float16, device=device)
        if sizes.has_token_scales:
            return torch.full((num_pages, PAGE_SIZE, G), SENTINEL, device=device)
        return draw.uniform(sizes.scales, low=2**-8, high=2**-6) if sizes.fp8 else None

    return {
        "query": draw.normal(T, sizes.H, sizes.D, dtype=sizes.dtype),
        "key": both[..., : sizes.D],
        "value": both[..., sizes.D :],
        "key_cache": pages[0].to(sizes.cache_dtype),
        "value_cache": pages[1].to(sizes.cache_dtype),
        "positions": draw.integers(0, 2 * T, T, dtype=torch.int64),
        "slots": slots,
        "cos": angles.cos(),
        "sin": angles.sin(),
        "key_scale": scale(),
        "value_scale": scale(),
    }


def _call(interleaved: bool, **operands: Any) -> tuple[Tensor, ...]:
    given = Operands(**operands, interleaved=interleaved)
    return all_written(given, rope_cache(given, impl="triton"))


def all_written(operands: Operands, rotated: Tensor) -> tuple[Tensor, ...]:
    """The tensors that one call writes: rotated, then each cache, and behind it scales that are found per token."""
    found = [rotated]
    for _, _, cache, scale in operands.written():
        found += [cache] if scale is None or not operands.has_token_scales else [cache, scale]
    return tuple(found)


def _reference(interleaved: bool, **o: Any) -> list[tuple[Tensor, Tensor]]:
    """(expected, how far a kernel may be before it rounds) float64, of each tensor of `all_written` as it is stored."""
    angles = o["positions"], o["cos"], o["sin"]
    query, key, value = rope_cache_ref(o["query"], o["key"], o["value"], *angles, interleaved=interleaved)
    found = [(query, rotation_error(o["query"], *angles, interleaved))]
    key_error = rotation_error(o["key"], *angles, interleaved)
    for name, new, error in (("key", key, key_error), ("value", value, torch.zeros_like(value))):
        cache, scale, written = o[f"{name}_cache"], o[f"{name}_scale"], written_rows(o[f"{name}_cache"], o["slots"])
        scales: list[tuple[Tensor, Tensor]] = []
        if scale is not None and cache.dtype == torch.int8:
            scales.append(_stored(scale, written, *_grid(new, error.amax(-1))))
            cache = decoded(cache, scale)
        elif scale is not None:
            largest, rounding = LARGEST[cache.dtype], torch.full_like(new[..., :1], 2**-24)  # of the quotient
            if scale.dim() == 3:
                factor = found_scale(new, cache.dtype)  # [T, G]
                off = error.amax(-1) / largest + 2**-24 * factor
                scales.append(_stored(scale, written, factor, off))
                rounding = rounding + (off / factor)[..., None]
            else:
                factor = scale.double()
            codes = new / factor[..., None]
            new, error = codes.clamp(-largest, largest), error / factor[..., None] + rounding * codes.abs()
        found += [_stored(cache, written, new, error), *scales]
    return found


def _stored(held: Tensor, written: Written, new: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(held with the new numbers in their places, how far each may be) float64; the others may not change."""
    expected, bound = held.double(), torch.zeros(held.shape, dtype=torch.float64, device=held.device)
    expected[written.places], bound[written.places] = new[written.rows], error[written.rows]
    return expected, bound


def _grid(new: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(scale and minimum [T, G, 2] of heads, before they are rounded, how far each may be). error [T, G]: of `new`

    If `new` moves, the minimum may be rounded to its neighbour, 2**-10 of it away, from which the scale is counted.
    """
    pair = scale_and_minimum(new)  # the scale from the rounded minimum on
    exact = torch.stack([((new.amax(-1) - pair[..., 1]) / 255).clamp(min=2.0**-24), new.amin(-1)], -1)
    neighbour = torch.where(error > 0, 2.0**-10 * pair[..., 1].abs(), 0.0)
    return exact, torch.stack([(2 * error + neighbour) / 255 + 2.0**-23 * exact[..., 0], error], -1)


def decoded(codes: Tensor, pair: Tensor) -> Tensor:
    """float64 of int8 codes [..., D] with scale and minimum [..., 2]"""
    return pair[..., :1].double() * (codes.double() + 128) + pair[..., 1:].double()


def agrees(result: tuple, expected: list[tuple[Tensor, Tensor]]) -> bool:
    """Within the rotation's error and half a step of the type: eps / 2 of a value, or of the smallest normal one.

    For int8 that is half the scale that was stored, with two roundings of steps up to 255. The ends of the
    grid are off by the roundings of scale and minimum to float16.
    """
    for place, (got, (exact, error)) in enumerate(zip(result, expected, strict=True)):
        if got.dtype == torch.int8:
            scale, minimum = result[place + 1].double()[..., None, :].unbind(-1)
            half_step = torch.maximum((0.5 + 2.0**-15) * scale, 2.0**-11 * (minimum.abs() + 255 * scale))
            if not bool(((decoded(got, result[place + 1]) - exact).abs() <= error + half_step).all()):
                return False
            continue
        about = torch.finfo(got.dtype)
        half_step = about.eps / 2 * exact.abs().clamp(min=about.smallest_normal)
        if not bool(((got.double() - exact).abs() <= error + half_step).all()):
            return False
    return True


def _launches(interleaved: bool, given: dict[str, Any], arch: int) -> list[Launch]:
    operands = Operands(**given, interleaved=interleaved)
    return launches(operands, operands.empty(), arch)


def _chain(interleaved: bool, **o: Any) -> Tensor:
    """As models do it: halves swapped, products of whole heads, then the caches by index."""
    cos, sin = o["cos"][o["positions"]][:, None], o["sin"][o["positions"]][:, None]  # [T, 1, R / 2]
    rotated = [_rotate(x, cos, sin, interleaved) for x in (o["query"], o["key"])]
    where = o["slots"].clamp(min=0) // PAGE_SIZE, o["slots"].clamp(min=0) % PAGE_SIZE
    for name, new in (("key", rotated[1]), ("value", o["value"])):
        cache, scale = o[f"{name}_cache"], o[f"{name}_scale"]
        if cache.dtype == torch.int8:
            least, greatest = new.float().aminmax(dim=-1)
            factor = ((greatest - least) / 255).clamp(min=2.0**-24)
            new = ((new.float() - least[..., None]) / factor[..., None]).round() - 128
            scale[where] = torch.stack([factor, least], -1).half()
        elif scale is not None:
            largest = LARGEST[cache.dtype]
            factor = scale if scale.dim() == 1 else (new.float().abs().amax(-1) / largest).clamp(min=2.0**-100)
            new = (new.float() / factor[..., None]).clamp(-largest, largest)
            if scale.dim() == 3:
                scale[where] = factor
        cache[where] = new.to(cache.dtype)
    return rotated[0]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    size = 2 * cos.shape[-1]
    pairs = x[..., :size].unflatten(-1, (-1, 2) if interleaved else (2, -1))
    first, second = pairs.unbind(-1 if interleaved else -2)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1 if interleaved else -2)
    return torch.cat([turned.flatten(-2).to(x.dtype), x[..., size:]], dim=-1)
