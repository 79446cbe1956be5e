"""Limits that a recommendation has to meet."""

from dataclasses import dataclass

from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Goal:
    """Limits; raises InputError for impossible ones."""

    memory_bytes: int  # of the whole process: its runtime, weights, KV cache, workspace
    context: int  # tokens that each sequence may reach
    batch: int = 1  # sequences side by side
    tps: float | None = None  # tokens a second of all sequences together, decoding at the end of the context
    runtime_bytes: int = 0  # part of the process that every model needs: Python, torch, kernels

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "context", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.tps is not None and not 0 < self.tps < float("inf"):
            raise InputError(f"tps is {self.tps}, expected more than 0 tokens a second")

    @property
    def model_bytes(self) -> int:
        """Bytes that the runtime leaves to the model; below 0 if the runtime alone does not fit."""
        return self.memory_bytes - self.runtime_bytes
