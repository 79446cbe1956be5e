"""Integer keys and values: asymmetric groups of a token's channels, or of a channel's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quant.errors import InputError
from quant.kv.codec import Codec, Parts
from quant.late import LateModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

HALF_MAX = 65504.0  # largest finite float16
SMALLEST_SCALE = 2.0**-24  # smallest float16 above 0


@dataclass(frozen=True)
class IntGroups(Codec):
    """x = scale * code + minimum, code in 0 .. 2**bits - 1, scale and minimum float16 of each token's groups.

    group  channels that share a scale; None: the whole head
    """

    bits: int  # 2, 4 or 8
    group: int | None = None

    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        groups = x.unflatten(-1, (-1, self.group or x.shape[-1]))  # [B, G, T, n, g]
        codes, step, minimum = quantize_asymmetric(groups, self.bits, dim=-1)
        return {
            "codes": pack(codes.flatten(-2), self.bits),
            "scale": step.squeeze(-1),  # [B, G, T, n]
            "minimum": minimum.squeeze(-1),
        }

    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        codes = unpack(parts["codes"], self.bits)
        groups = codes.unflatten(-1, (parts["scale"].shape[-1], -1))
        return (groups * parts["scale"].float().unsqueeze(-1) + parts["minimum"].float().unsqueeze(-1)).flatten(-2)

    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        return num_heads * (head_dim * self.bits / 8 + 4 * (head_dim // (self.group or head_dim)))

    def check(self, head_dim: int) -> None:
        check_groups(head_dim, self.group or head_dim, self.bits)


@dataclass(frozen=True)
class IntChannels(Codec):
    """The same per channel: a scale and a minimum for `token_group` tokens of each channel. Keys have channels of
    large magnitude at every token, which a token's own groups cannot follow.

    source  Liu et al. 2024 (KIVI), arXiv:2402.02750, section 3
    """

    bits: int
    token_group: int = 32

    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        groups = x.unflatten(2, (-1, self.token_group))  # [B, G, n, g, D]
        codes, step, minimum = quantize_asymmetric(groups, self.bits, dim=3)
        return {
            "codes": pack(codes.flatten(2, 3), self.bits),
            "scale": step.squeeze(3),  # [B, G, n, D]
            "minimum": minimum.squeeze(3),
        }

    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        groups = unpack(parts["codes"], self.bits).unflatten(2, (-1, self.token_group))
        return (groups * parts["scale"].float().unsqueeze(3) + parts["minimum"].float().unsqueeze(3)).flatten(2, 3)

    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        return num_heads * head_dim * (self.bits / 8 + 4 / self.token_group)

    def check(self, head_dim: int) -> None:
        check_groups(head_dim, head_dim, self.bits)


def quantize_asymmetric(groups: Tensor, bits: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The grid from each group's smallest to its largest value along `dim`.

    returns  codes uint8 of the same shape; scale and minimum float16, `dim` kept as 1
    """
    levels = (1 << bits) - 1
    minimum = groups.amin(dim, keepdim=True).clamp(-HALF_MAX, HALF_MAX).half()
    span = groups.amax(dim, keepdim=True) - minimum.float()
    scale = (span / levels).clamp(SMALLEST_SCALE, HALF_MAX).half()
    codes = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    return codes.to(torch.uint8), scale, minimum


def pack(codes: Tensor, bits: int) -> Tensor:
    """codes [..., D] uint8 -> [..., D * bits / 8] uint8; the first code of a byte is in its lowest bits"""
    per_byte = 8 // bits
    packed = codes[..., 0::per_byte]
    for i in range(1, per_byte):
        packed = packed | codes[..., i::per_byte] << bits * i
    return packed


def unpack(packed: Tensor, bits: int) -> Tensor:
    """-> codes [..., D] uint8"""
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    return torch.stack([packed >> shift & mask for shift in range(0, 8, bits)], dim=-1).flatten(-2)


def check_groups(head_dim: int, group: int, bits: int) -> None:
    if head_dim % group or head_dim * bits % 8:
        raise InputError(f"KV groups of {group} channels do not divide a head of {head_dim}; take another KV format")
