"""Keys and values as floats of 16 bits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.kv.codec import Codec, Parts


@dataclass(frozen=True)
class Floats(Codec):
    """x to the nearest value of `dtype`; beyond the largest finite one infinite, NaN stays NaN."""

    dtype: torch.dtype

    def encode(self, x: Tensor, scale: Tensor | None = None) -> Parts:
        return {"codes": x.to(self.dtype)}

    def decode(self, parts: Parts, scale: Tensor | None = None) -> Tensor:
        return parts["codes"].float()

    def bytes_per_token(self, num_heads: int, head_dim: int) -> float:
        return num_heads * head_dim * self.dtype.itemsize

    def check(self, head_dim: int) -> None:
        """Any head will do."""
