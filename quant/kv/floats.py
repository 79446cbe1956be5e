"""Keys and values as floats of 16 bits."""

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


@dataclass(frozen=True)
class Floats(Codec):
    """x to the nearest value of a dtype of torch; beyond the largest finite one infinite, NaN stays NaN."""

    dtype_name: str

    @cached_property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype_name)

    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        return {"codes": x.to(self.dtype)}

    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        return parts["codes"].float()

    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        return num_heads * head_dim * self.dtype.itemsize

    def check(self, head_dim: int) -> None:
        """Any head will do."""
