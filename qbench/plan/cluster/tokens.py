"""Tokens: those of one forward pass."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tokens:
    """One forward pass: `batch` sequences of `count` new tokens each, after `depth` that the cache holds."""

    batch: int
    count: int
    depth: int

    @property
    def total(self) -> int:
        return self.batch * self.count
