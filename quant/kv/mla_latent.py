"""MLA's cached latent in 656 bytes a token: what FlashMLA's FP8 decode kernel reads.

byte 0                      512                 528                     656
     +----------------------+-------------------+-----------------------+
     | latent: 512 x e4m3   | scale: 4 x float32| key: 64 x bfloat16    |
     +----------------------+-------------------+-----------------------+

scale[i] belongs to latent[128 i : 128 i + 128]; latent = the compressed keys and values (kv_lora_rank 512, after its
norm); key = the 64 rotated channels, which are too sensitive for FP8 and stay as they are. In bfloat16 alone a token
takes 1152 bytes.
"""

import torch
from torch import Tensor

LATENT_SIZE, ROPE_SIZE, GROUP = 512, 64, 128
NUM_SCALES = LATENT_SIZE // GROUP
BYTES = LATENT_SIZE + 4 * NUM_SCALES + 2 * ROPE_SIZE
E4M3_MAX = 448.0
SMALLEST_SCALE = 2.0**-100  # of an all-zero group

assert BYTES == 656


def encode_latent(latent: Tensor, key: Tensor) -> Tensor:
    """latent [..., 512], key [..., 64] float -> [..., 656] uint8"""
    if latent.shape[-1] != LATENT_SIZE or key.shape[-1] != ROPE_SIZE or latent.shape[:-1] != key.shape[:-1]:
        got = f"latent {list(latent.shape)} and key {list(key.shape)}"
        raise ValueError(f"{got}, expected [..., {LATENT_SIZE}] and [..., {ROPE_SIZE}] alike")
    groups = latent.float().unflatten(-1, (NUM_SCALES, GROUP))
    scale = (groups.abs().amax(-1) / E4M3_MAX).clamp(min=SMALLEST_SCALE)  # [..., 4]
    codes = (groups / scale.unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    parts = codes.flatten(-2), scale, key.bfloat16()
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=-1)


def decode_latent(data: Tensor) -> tuple[Tensor, Tensor]:
    """data [..., 656] uint8 -> latent [..., 512], key [..., 64] float32"""
    if data.dtype != torch.uint8 or data.shape[-1] != BYTES:
        raise ValueError(f"got {data.dtype} {list(data.shape)}, expected uint8 [..., {BYTES}]")
    codes, scale, key = data.split_with_sizes([LATENT_SIZE, 4 * NUM_SCALES, 2 * ROPE_SIZE], dim=-1)
    groups = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (NUM_SCALES, GROUP))
    latent = groups * scale.contiguous().view(torch.float32).unsqueeze(-1)
    return latent.flatten(-2), key.contiguous().view(torch.bfloat16).float()
