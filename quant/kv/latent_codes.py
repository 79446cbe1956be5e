"""MLA's cached latent in bytes: codes of R channels, scales of groups of them, and the rotated key of D channels.

byte 0                 R * bits / 8           + 4 * R / group         + 2 * D
     +------------------+----------------------+-----------------------+
     | latent: R codes  | R / group x 4 bytes  | key: D x bfloat16     |
     +------------------+----------------------+-----------------------+

name   codes                              of a group                      R, D = 512, 64
fp8    e4m3                               float32 scale, of 128 channels  656 bytes, as FlashMLA reads them
int8   0 .. 255                           float16 scale and minimum, 64   672 bytes
int4   0 .. 15, 16 bytes of 32 channels:  float16 scale and minimum, 32   448 bytes
       the first 16 in low nibbles

latent = the compressed keys and values, after their norm; key = the rotated channels, which are too sensitive for 8
bits and stay as they are. In bfloat16 alone a token takes 1152 bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quant.kv.ints import quantize_asymmetric
from quant.late import LateModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

E4M3_MAX = 448.0
SMALLEST_SCALE = 2.0**-100  # of an all-zero group
SCALE_BYTES = 4  # of a group


@dataclass(frozen=True)
class LatentCodes(ABC):
    """group: channels that share a scale, of which a latent has a whole number"""

    bits: int
    group: int

    def row_bytes(self, rank: int, rope_dim: int) -> int:
        return rank * self.bits // 8 + rank // self.group * SCALE_BYTES + 2 * rope_dim

    def encode(self, latent: Tensor, key: Tensor) -> Tensor:
        """latent [..., R], key [..., D] float -> [..., row_bytes] uint8"""
        parts = *self._encode(latent.float().unflatten(-1, (-1, self.group))), key.bfloat16()
        return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=-1)

    def decode(self, data: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        """data [..., row_bytes] uint8 -> latent [..., R], key [..., D] float32"""
        sizes = (rank * self.bits // 8, rank // self.group * SCALE_BYTES)
        codes, scales, key = (part.contiguous() for part in data.split((*sizes, data.shape[-1] - sum(sizes)), dim=-1))
        return self._decode(codes, scales).flatten(-2), key.view(torch.bfloat16).float()

    @abstractmethod
    def _encode(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        """groups [..., n, group] float32 -> codes and scales, of any types that are R * bits / 8 and 4 n bytes"""

    @abstractmethod
    def _decode(self, codes: Tensor, scales: Tensor) -> Tensor:
        """uint8 both -> [..., n, group] float32"""


class Fp8Codes(LatentCodes):
    def _encode(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        scale = (groups.abs().amax(-1) / E4M3_MAX).clamp(min=SMALLEST_SCALE)  # [..., n]
        codes = (groups / scale.unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
        return codes.flatten(-2), scale

    def _decode(self, codes: Tensor, scales: Tensor) -> Tensor:
        groups = codes.view(torch.float8_e4m3fn).float().unflatten(-1, (-1, self.group))
        return groups * scales.view(torch.float32).unsqueeze(-1)


class IntCodes(LatentCodes):
    def _encode(self, groups: Tensor) -> tuple[Tensor, Tensor]:
        codes, scale, minimum = quantize_asymmetric(groups, self.bits, dim=-1)
        if self.bits == 4:
            low, high = codes.chunk(2, dim=-1)
            codes = low | high << 4
        return codes.flatten(-2), torch.cat((scale, minimum), -1).flatten(-2)

    def _decode(self, codes: Tensor, scales: Tensor) -> Tensor:
        groups = codes.unflatten(-1, (-1, self.group * self.bits // 8))
        if self.bits == 4:
            groups = torch.cat((groups & 15, groups >> 4), -1)
        scale, minimum = scales.view(torch.float16).float().unflatten(-1, (-1, 2)).split(1, dim=-1)
        return groups * scale + minimum


LATENT_CODES: dict[str, LatentCodes] = {
    "fp8": Fp8Codes(8, 128),
    "int8": IntCodes(8, 64),
    "int4": IntCodes(4, 32),
}
