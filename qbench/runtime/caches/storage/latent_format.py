"""Latents: one row per token that all heads share, the formats of rows, and the code that attends to them."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, get_mode
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KVScheme
from quant.kv.latent_codes import LATENT_CODES, LatentCodes
from quant.models import MlaConfig, ModelConfig
from quant.present import present

# cpu_kernels take rows in whole registers, and values four registers at a time.
ROW_STEP, VALUE_STEP = 16, 64


def has_latent_kernels(mla: MlaConfig) -> bool:
    """Whether cpu_kernels attend over rows of these sizes."""
    return has_cpu_kernels() and mla.latent_size % ROW_STEP == 0 and mla.kv_lora_rank % VALUE_STEP == 0


@dataclass(frozen=True, slots=True)
class LatentFormat:
    """How rows are kept.

    name   cpu_kernels' word for it
    dtype  of stored elements
    codes  of rows of bytes
    """

    name: str
    dtype: torch.dtype
    codes: LatentCodes | None = None

    def holds(self, mla: MlaConfig) -> bool:
        return self.codes is None or mla.kv_lora_rank % self.codes.group == 0

    def width(self, mla: MlaConfig) -> int:
        """Elements of a stored row."""
        return mla.latent_size if self.codes is None else self.codes.row_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim)

    def row_bytes(self, mla: MlaConfig) -> int:
        return self.width(mla) * self.dtype.itemsize

    def encode(self, rows: Tensor, rank: int) -> Tensor:
        """[..., latent_size] float32, of which `rank` are the latent -> [..., width]"""
        if self.codes is None:
            return rows.to(self.dtype)
        return self.codes.encode(*rows.tensor_split((rank,), -1))

    def decode(self, held: Tensor, rank: int) -> Tensor:
        """[..., width] -> [..., latent_size] float32"""
        return held.float() if self.codes is None else torch.cat(self.codes.decode(held, rank), -1)


# KV format -> rows; other formats are kept as every head's own keys and values. None: floats as they come
LATENT_FORMATS: dict[str | None, LatentFormat] = {
    None: LatentFormat("f32", torch.float32),
    "kv-f16": LatentFormat("f16", torch.float16),
    "kv-bf16": LatentFormat("bf16", torch.bfloat16),
    **{f"kv-{name}": LatentFormat(name, torch.uint8, codes) for name, codes in LATENT_CODES.items()},
}


def latent_format(config: ModelConfig, scheme: KVScheme | None) -> LatentFormat | None:
    """The format of this model's rows, or None if it keeps no rows or the format cannot hold their size."""
    fmt = LATENT_FORMATS.get(None if scheme is None else scheme.format.name)
    return fmt if config.mla is not None and fmt is not None and fmt.holds(config.mla) else None


@dataclass(frozen=True, slots=True)
class Latents:
    """The rows of a cache, and who attends to them.

    rank        channels of a row that are the latent; the rotated key follows
    in_kernels  whether cpu_kernels attend; False: torch
    mode        name of the only mode that attends; None: whichever is measured to be fastest
    """

    format: LatentFormat
    rank: int
    in_kernels: bool
    mode: str | None = None


MODE_VARIABLE = "QBENCH_MLA_MODE"  # the mode of every cache that is not given one


def chosen_latents(
    config: ModelConfig, scheme: KVScheme | None, mode: str | None = None, *, impl: str = "auto"
) -> tuple[str | None, LatentFormat | None]:
    """The mode that is asked for, None for the fastest, and the format of rows, None for keys and values of heads.

    impl     of the model. "exact": if no mode is given, it is the same for any number of tokens, as the fastest
             depends on how many come at once, and each mode rounds its own way
    raises   InputError for an unknown mode, a mode of latents in a format without latents, and any mode for other
             attention
    """
    if config.mla is None:
        if mode is not None:
            raise InputError(f"mode {mode!r} is one of latent attention, which {config.architecture.name} has not")
        return None, None
    mode, fmt = mode or os.environ.get(MODE_VARIABLE) or None, latent_format(config, scheme)
    if mode is None:
        return ELIDED if impl == "exact" and fmt is not None else None, fmt
    if not get_mode(mode).keeps_latents:
        return mode, None
    if fmt is None:
        known = ", ".join(name for name in LATENT_FORMATS if name)
        raise InputError(
            f"mode {mode!r} keeps latents, which {present(scheme).format.name} does not hold here; known: {known}"
        )
    return mode, fmt


def uncached_latents(config: ModelConfig, scheme: KVScheme | None) -> Latents | None:
    """How a forward pass without a cache reads rows as the format would give them back; None: there are no rows."""
    _, fmt = (None, None) if scheme is None else chosen_latents(config, scheme)
    return None if fmt is None else Latents(fmt, present(config.mla).kv_lora_rank, in_kernels=False, mode=COMPRESSED)
