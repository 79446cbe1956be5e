"""Seeded operands of a problem, on any device; on "meta" they have shapes and no values."""

import torch
from torch import Tensor


class Draw:
    """The same numbers for the same seed, device and order of calls."""

    def __init__(self, device: str, seed: int = 0):
        self.device = device
        self.generator = None if device == "meta" else torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device).to(dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device) * (high - low) + low

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
        """In [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator, device=self.device, dtype=dtype)
