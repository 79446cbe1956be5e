"""Problems on which compaction is checked, compiled and timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.attention.paged_operands import paged_cache
from gpu_kernels.fused.compact import INTEGERS, Operands, compact, compact_ref
from gpu_kernels.fused.compact_triton import launches
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name


@dataclass(frozen=True, slots=True)
class Sizes:
    B: int
    T: int
    n: int  # slots that each head keeps at most
    G: int = 8
    D: int = 128
    page_size: int = 64
    dtype: torch.dtype = torch.bfloat16

    def __str__(self) -> str:
        sizes = f"B={self.B} T={self.T} n={self.n} G={self.G} D={self.D}"
        return f"{sizes} page={self.page_size} {dtype_name(self.dtype)}"


FP8 = torch.float8_e4m3fn
# Llama 8B's heads, an eighth of the tokens kept.
TIMED = [Sizes(1, 8192, 1024), Sizes(16, 8192, 1024), Sizes(16, 8192, 1024, dtype=FP8)]
ODD = [
    Sizes(2, 131, 100, 3, 64, 16, torch.float16),
    Sizes(3, 200, 70, 2, 80, 32, FP8),
    Sizes(1, 63, 1, 1, 64, 16, torch.int8),
]


def problems() -> list[Problem]:
    return [_problem(sizes, is_timed=True) for sizes in TIMED] + [_problem(sizes) for sizes in ODD]


def _problem(sizes: Sizes, is_timed: bool = False) -> Problem:
    rows = sizes.B * sizes.G * sizes.n
    return Problem(
        op=Op("compact", Unconfigured(_call, _launches), _reference),
        label=str(sizes),
        sizes={name: getattr(sizes, name) for name in ("B", "T", "n", "G", "D")} | {"form": str(sizes)},
        operands=partial(_operands, sizes),
        agrees=_agrees,
        num_bytes=rows * (2 * 2 * sizes.D * sizes.dtype.itemsize + 4),  # keys and values, read and written; keep
        ops=0,
        bound="bandwidth",
        peers={"torch gather": _gather},
        is_timed=is_timed,
    )


def _operands(sizes: Sizes, device: str) -> dict[str, Any]:
    """Each head keeps slots of its own; every second one keeps some fewer."""
    draw = Draw(device)
    cache = paged_cache(draw, [sizes.T] * sizes.B, sizes.G, sizes.D, sizes.page_size, sizes.dtype)
    if device == "meta":
        keep = torch.empty(sizes.B, sizes.G, sizes.n, dtype=torch.int32, device=device)
    else:
        generator = torch.Generator().manual_seed(0)
        order = torch.rand(sizes.B, sizes.G, sizes.T, generator=generator).argsort(-1)
        keep = order[..., : sizes.n].sort(-1).values.int()
        keep[:, 1::2, sizes.n - sizes.n // 4 :] = -1
        keep = keep.to(device)
    return {
        "key_cache": cache.keys,
        "value_cache": cache.values,
        "block_table": cache.block_table,
        "keep": keep,
    }


def _call(**operands: Any) -> tuple[Tensor, Tensor]:
    compact(Operands(**operands), impl="triton")
    return operands["key_cache"], operands["value_cache"]


def _reference(**operands: Any) -> list[Tensor]:
    caches = Operands(**operands).integers()
    return [compact_ref(cache, operands["block_table"], operands["keep"]) for cache in caches]


def _agrees(result: tuple[Tensor, Tensor], expected: list[Tensor]) -> bool:
    """Bit by bit."""
    return all(torch.equal(got.view(INTEGERS[got.itemsize]), want) for got, want in zip(result, expected, strict=True))


def _launches(given: dict[str, Any], arch: int) -> list[Launch]:
    return launches(Operands(**given), arch)


def _gather(key_cache: Tensor, value_cache: Tensor, block_table: Tensor, keep: Tensor) -> None:
    """By index, through a copy of the rows; slots that are not there move onto themselves."""
    page_size, to = key_cache.shape[1], torch.arange(keep.shape[2], device=keep.device).expand_as(keep)
    source = torch.where(keep < 0, to, keep).long()
    heads = torch.arange(keep.shape[1], device=keep.device)[None, :, None]
    sequences = torch.arange(len(keep), device=keep.device)[:, None, None]
    for cache in (key_cache.view(INTEGERS[key_cache.itemsize]), value_cache.view(INTEGERS[value_cache.itemsize])):
        rows = cache[block_table[sequences, source // page_size].long(), source % page_size, heads]
        cache[block_table[sequences, to // page_size].long(), to % page_size, heads] = rows
