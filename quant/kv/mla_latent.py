"""MLA's cached latent in 656 bytes per token, the format of FlashMLA's FP8 decode kernel.

byte 0                      512                 528                     656
     +----------------------+-------------------+-----------------------+
     | latent: 512 x e4m3   | scale: 4 x float32| key: 64 x bfloat16    |
     +----------------------+-------------------+-----------------------+

scale[i] belongs to latent[128 i : 128 i + 128]. It is latent_codes' "fp8" of a kv_lora_rank of 512 and 64 rotated
channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quant.kv.latent_codes import LATENT_CODES
from quant.late import LateModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

LATENT_SIZE, ROPE_SIZE = 512, 64
CODES = LATENT_CODES["fp8"]
BYTES = CODES.row_bytes(LATENT_SIZE, ROPE_SIZE)

assert BYTES == 656


def encode_latent(latent: Tensor, key: Tensor) -> Tensor:
    """latent [..., 512], key [..., 64] float -> [..., 656] uint8"""
    if latent.shape[-1] != LATENT_SIZE or key.shape[-1] != ROPE_SIZE or latent.shape[:-1] != key.shape[:-1]:
        got = f"latent {list(latent.shape)} and key {list(key.shape)}"
        raise ValueError(f"{got}, expected [..., {LATENT_SIZE}] and [..., {ROPE_SIZE}] alike")
    return CODES.encode(latent, key)


def decode_latent(data: Tensor) -> tuple[Tensor, Tensor]:
    """data [..., 656] uint8 -> latent [..., 512], key [..., 64] float32"""
    if data.dtype != torch.uint8 or data.shape[-1] != BYTES:
        raise ValueError(f"got {data.dtype} {list(data.shape)}, expected uint8 [..., {BYTES}]")
    return CODES.decode(data, LATENT_SIZE)
