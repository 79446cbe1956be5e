"""FP8 keys and values: e4m3 or e5m2 times a scale per tensor or per head, found beforehand or for each token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from quant.kv.codec import Codec, Parts
from quant.late import LateModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

SCALE_BYTES = 4
SMALLEST_SCALE = 2.0**-100  # of an all-zero vector: any scale does, if it and its inverse are finite


@dataclass(frozen=True)
class Fp8(Codec):
    """x = scale * code; a code beyond the largest finite one saturates, NaN stays NaN.

    If scales are given, a token that overflows, even an infinite one, weighs too little and does not make all that see
    it NaN, as torch's own cast to e5m2 would, which is infinite from 61440 on. A scale that is found for a token with
    an infinity is infinite, and all that it scales NaN.

    per         "tensor": one scale for all heads, "head": one for each
    calibrated  the scale is given, as compressed-tensors' k_scale and v_scale; otherwise each token has its own
    spread      whether each head stores the scale that all share, so that heads may keep different tokens
    """

    dtype_name: str  # "float8_e4m3fn" or "float8_e5m2"
    per: str
    calibrated: bool = False
    spread: bool = False

    @cached_property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype_name)

    @cached_property
    def largest(self) -> float:
        return torch.finfo(self.dtype).max

    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        factor = self._given(scale) if self.calibrated else self.scale_of(x)
        codes = (x / factor).clamp(-self.largest, self.largest).to(self.dtype)
        if self.calibrated:
            return {"codes": codes}
        return {"codes": codes, "scale": factor.expand(*x.shape[:3], 1) if self.spread else factor}

    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        return parts["codes"].float() * (self._given(scale) if self.calibrated else parts["scale"])

    def scale_of(self, x: Tensor) -> Tensor:
        """x [B, G, T, D] -> [B, G or 1, T, 1] float32 that brings the largest magnitude to the largest code"""
        amax = x.abs().amax(dim=(1, 3) if self.per == "tensor" else 3, keepdim=True)
        return (amax / self.largest).clamp(min=SMALLEST_SCALE)

    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        num_scales = 0 if self.calibrated else (1 if self.per == "tensor" and not self.spread else num_heads)
        return num_heads * head_dim + SCALE_BYTES * num_scales

    def check(self, head_dim: int) -> None:
        """Any head will do."""

    @staticmethod
    def _given(scale: Tensor | None) -> Tensor:
        if scale is None:
            raise ValueError("a calibrated codec needs its scale, got None")
        return scale.reshape(1, -1, 1, 1)
