"""Problems on which MLA's cache write is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.fused.mla_cache import FP8_BYTES, LATENT_SIZE, ROPE_SIZE, Operands, mla_cache, mla_cache_ref
from gpu_kernels.fused.mla_cache_triton import launches
from gpu_kernels.fused.rope import rotation_error
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name, same

PAGE_SIZE = 64
SENTINEL = 100  # content of the cache at slots without a write
# (tokens, dtype, FP8 cache, interleaved); a prefill's and a batch's
TIMED = [(4096, torch.bfloat16, True, True), (4096, torch.bfloat16, False, True), (128, torch.bfloat16, True, True)]
ODD = [(1, torch.float16, True, False), (7, torch.float16, True, True), (7, torch.float16, False, False)]


def problems() -> list[Problem]:
    return [_problem(*each, is_timed=True) for each in TIMED] + [_problem(*each) for each in ODD]


def _problem(T: int, dtype: torch.dtype, is_fp8: bool, interleaved: bool, is_timed: bool = False) -> Problem:
    name, width = dtype_name(dtype), LATENT_SIZE + ROPE_SIZE
    form = ("fp8" if is_fp8 else "plain") + (" interleaved" if interleaved else "")
    row = FP8_BYTES if is_fp8 else dtype.itemsize * width
    return Problem(
        op=Op(
            "mla_cache",
            Unconfigured(
                partial(_call, interleaved),
                lambda given, arch: launches(Operands(**given, interleaved=interleaved), arch),
            ),
            partial(_reference, interleaved),
        ),
        label=f"T={T} {name} {form}",
        sizes={"T": T, "dtype": name, "form": form},
        operands=partial(_operands, T, dtype, is_fp8, is_exact=not is_timed),
        agrees=_agrees,
        # latent and key, the row, a row of cos and of sin, position and slot
        num_bytes=T * (dtype.itemsize * width + row + 2 * 4 * ROPE_SIZE // 2 + 2 * 8),
        ops=T * (4 * LATENT_SIZE * is_fp8 + 3 * ROPE_SIZE),  # abs, max, divide, round; two products and a sum
        bound="bandwidth",
        peers={"torch chain": partial(_chain, interleaved)},
        is_timed=is_timed,
    )


def _operands(T: int, dtype: torch.dtype, is_fp8: bool, device: str, is_exact: bool) -> dict[str, Any]:
    """Slots in no order, one token without. Where exact, turns are whole quarters: the key stays exact in bfloat16,

    which the interpreter cuts off instead of rounding.
    """
    draw = Draw(device)
    num_pages, half = T // PAGE_SIZE + 2, ROPE_SIZE // 2
    slots = torch.randperm(num_pages * PAGE_SIZE, generator=torch.Generator().manual_seed(0))[:T].to(device)
    if T > 1 and device != "meta":
        slots[T // 2] = -1
    quarters = torch.arange(2 * T, device=device)[:, None] + torch.arange(half, device=device)[None, :]
    angles = quarters * (torch.pi / 2) if is_exact else quarters * 0.37
    cos, sin = angles.cos(), angles.sin()
    if is_exact:
        cos, sin = cos.round(), sin.round()
    width = FP8_BYTES if is_fp8 else LATENT_SIZE + ROPE_SIZE
    cache_dtype = torch.uint8 if is_fp8 else dtype
    key = draw.normal(T, ROPE_SIZE, dtype=torch.bfloat16).to(dtype)
    return {
        "latent": draw.normal(T, LATENT_SIZE, dtype=dtype),
        "key": key,
        "cache": torch.full((num_pages, PAGE_SIZE, width), SENTINEL, dtype=cache_dtype, device=device),
        "positions": draw.integers(0, 2 * T, T, dtype=torch.int64),
        "slots": slots,
        "cos": cos,
        "sin": sin,
    }


def _call(interleaved: bool, **operands: Any) -> tuple[Tensor, Tensor]:
    """The cache, and the slots that it was written at, by which `_agrees` finds its rows."""
    mla_cache(Operands(**operands, interleaved=interleaved), impl="triton")
    return operands["cache"], operands["slots"]


def _reference(interleaved: bool, **o: Any) -> tuple:
    """(codes, scale, latent as stored in 16 bits, key' and how far it may be before it is rounded)."""
    angles = o["positions"], o["cos"], o["sin"]
    codes, scale, turned = mla_cache_ref(o["latent"], o["key"], *angles, interleaved=interleaved)
    error = rotation_error(o["key"][:, None], *angles, interleaved)[:, 0]
    return codes, scale, o["latent"], turned, error


def _agrees(result: tuple[Tensor, Tensor], expected: tuple) -> bool:
    """Codes, scales and 16-bit latents bit by bit; the key within its error and half of one step; the rest
    untouched.
    """
    (cache, slots), (codes, scale, latent, turned, error) = result, expected
    taken = slots >= 0
    rows = cache.flatten(0, 1)
    written = rows[slots[taken]]
    untouched = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    untouched[slots[taken]] = False
    if not bool((rows[untouched] == SENTINEL).all()):
        return False
    if cache.dtype == torch.uint8:
        got_codes, got_scale, key = written.split([LATENT_SIZE, 16, 2 * ROPE_SIZE], dim=1)
        got_scale, key = got_scale.contiguous().view(torch.float32), key.contiguous().view(torch.bfloat16)
        is_right = torch.equal(got_codes, codes[taken].view(torch.uint8)) and same(got_scale, scale[taken])
    else:
        got_latent, key = written.split([LATENT_SIZE, ROPE_SIZE], dim=1)
        is_right = torch.equal(got_latent, latent[taken])
    about = torch.finfo(key.dtype)
    bound = error[taken] + about.eps / 2 * turned[taken].abs().clamp(min=about.smallest_normal)
    return is_right and bool(((key.double() - turned[taken]).abs() <= bound).all())


def _chain(interleaved: bool, **o: Any) -> Tensor:
    """Whole-tensor steps with every intermediate in memory."""
    cos, sin = o["cos"][o["positions"]], o["sin"][o["positions"]]
    first, second = o["key"].unflatten(1, (-1, 2) if interleaved else (2, -1)).unbind(2 if interleaved else 1)
    parts = [first * cos - second * sin, second * cos + first * sin]
    turned = torch.stack(parts, dim=2 if interleaved else 1).flatten(1)
    rows = torch.cat([o["latent"], turned.to(o["latent"].dtype)], dim=1)
    if o["cache"].dtype == torch.uint8:
        groups = o["latent"].float().unflatten(1, (4, 128))
        scale = (groups.abs().amax(-1) / 448).clamp(min=2.0**-100)
        codes = (groups / scale[..., None]).to(torch.float8_e4m3fn).flatten(1)
        rows = torch.cat([part.view(torch.uint8) for part in (codes, scale, turned.bfloat16())], dim=1)
    slots = o["slots"].clamp(min=0)
    o["cache"][slots // PAGE_SIZE, slots % PAGE_SIZE] = rows
    return o["cache"]
