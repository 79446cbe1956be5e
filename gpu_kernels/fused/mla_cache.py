"""MLA's new tokens: rotated keys and latents written to their pages, in 16 bits or in the 656 bytes that FP8 takes.

    byte 0           512          528             656
         | 512 x e4m3 | 4 x float32 | 64 x bfloat16 |        latent codes, scales of 128 each, rotated key

    scale[i] = max(absmax latent[128 i : 128 i + 128] / 448, 2**-100)      code = (latent / scale) as e4m3

Latents come normalized; the rotation is rope.py's, of the 64 channels that all heads share. A group of latents that
holds NaN or inf gets scale NaN and codes 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.fused.rope import DTYPES, cache_rows, check_rotation, rotate_ref

LATENT_SIZE, ROPE_SIZE, GROUP = 512, 64, 128
NUM_SCALES = LATENT_SIZE // GROUP
FP8_BYTES = LATENT_SIZE + 4 * NUM_SCALES + 2 * ROPE_SIZE
FP8_MAX = 448.0
SMALLEST_SCALE = 2.0**-100

assert FP8_BYTES == 656


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call, and the cache that it writes.

    latent     [T, 512], key [T, 64] both float16, bfloat16 or float32, the last axis dense
    cache      [num_pages, page_size, 576] of their type, or [num_pages, page_size, 656] uint8 (FP8), dense last axis
    positions  [T] int32 or int64, rows of cos and sin
    slots      [T] int32 or int64: place of each token, -1: nowhere; no two are equal
    cos, sin   [P, 32] float32
    raises     TypeError (dtypes), ValueError (shapes, strides, devices)
    """

    latent: Tensor
    key: Tensor
    cache: Tensor
    positions: Tensor
    slots: Tensor
    cos: Tensor
    sin: Tensor
    interleaved: bool = False

    def __post_init__(self) -> None:
        op, T, latent, key, cache, cos = "mla_cache", len(self.latent), self.latent, self.key, self.cache, self.cos
        check_rotation(op, self.positions, cos, self.sin, self.slots, T)
        if latent.dtype not in DTYPES or key.dtype != latent.dtype:
            got = f"latent {latent.dtype} and key {key.dtype}"
            raise TypeError(f"{op}: got {got}, expected one of {' or '.join(map(str, DTYPES))} for both")
        if (
            list(latent.shape) != [T, LATENT_SIZE]
            or list(key.shape) != [T, ROPE_SIZE]
            or cos.shape[1] != ROPE_SIZE // 2
        ):
            got = f"latent {list(latent.shape)}, key {list(key.shape)} and cos {list(cos.shape)}"
            raise ValueError(
                f"{op}: got {got}, expected [T, {LATENT_SIZE}], [T, {ROPE_SIZE}] and [P, {ROPE_SIZE // 2}]"
            )
        if cache.dtype not in (latent.dtype, torch.uint8):
            raise TypeError(f"{op}: got cache {cache.dtype}, expected {latent.dtype}, or uint8 for FP8")
        width = FP8_BYTES if self.is_fp8 else LATENT_SIZE + ROPE_SIZE
        if cache.dim() != 3 or cache.shape[2] != width:
            raise ValueError(f"{op}: got cache {list(cache.shape)}, expected [num_pages, page_size, {width}]")
        if latent.stride(1) != 1 or key.stride(1) != 1 or cache.stride(2) != 1:
            strides = [list(tensor.stride()) for tensor in (latent, key, cache)]
            raise ValueError(f"{op}: got strides {strides} of latent, key and cache, expected 1 in the end of each")
        if self.is_fp8 and (cache.data_ptr() % 4 or any(step % 4 for step in cache.stride()[:2])):
            raise ValueError(f"{op}: got cache rows that are not 4-byte aligned, which their scales are stored by")
        for name, tensor in {"key": key, "cache": cache, "slots": self.slots, "cos": cos}.items():
            if tensor.device != latent.device:
                raise ValueError(
                    f"{op}: got {name} on {tensor.device} and latent on {latent.device}, expected one device"
                )

    @property
    def is_fp8(self) -> bool:
        return self.cache.dtype == torch.uint8


def mla_cache_ref(
    latent: Tensor, key: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(codes [T, 512] e4m3, scale [T, 4] float32, key' [T, 64] float64): the oracle of a token's 656 bytes.

    In float32, the kernel's own precision: codes and scales compare exactly.
    """
    groups = latent.float().unflatten(1, (NUM_SCALES, GROUP))
    absmax = groups.abs().amax(-1)  # [T, 4]
    # By a tensor: by a number, torch on a GPU multiplies with the rounded reciprocal instead of dividing.
    scale = (absmax / torch.full_like(absmax, FP8_MAX)).clamp(min=SMALLEST_SCALE).where(absmax.isfinite(), torch.nan)
    codes = (groups / scale[..., None]).nan_to_num(nan=0.0).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    turned = rotate_ref(key[:, None], positions, cos, sin, interleaved)[:, 0]
    return codes.flatten(1), scale, turned


def mla_cache(operands: Operands, impl: str | None = None) -> None:
    """Writes each token's latent and rotated key into its slot of the cache.

    impl  an entry of the table other than the first for the device
    """
    run = implementation("mla_cache", operands.latent.device.type, impl)
    if len(operands.latent):
        run(operands)


def mla_cache_reference(operands: Operands) -> None:
    """Writes the oracle's result into the cache: the table's entry "reference"."""
    latent, key, cache = operands.latent, operands.key, operands.cache
    angles = operands.positions, operands.cos, operands.sin
    codes, scale, turned = mla_cache_ref(latent, key, *angles, interleaved=operands.interleaved)
    if operands.is_fp8:
        parts = codes, scale, turned.bfloat16()
        rows = torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)
    else:
        rows = torch.cat([latent.to(cache.dtype), turned.to(cache.dtype)], dim=1)
    cache[cache_rows(cache, operands.slots)] = rows[operands.slots >= 0]
