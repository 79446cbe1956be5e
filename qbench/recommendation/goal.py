"""Limits that a recommendation has to meet."""

from dataclasses import dataclass, field

from quant.errors import InputError
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class Goal(JsonData):
    """Limits; raises InputError for impossible ones."""

    memory_bytes: int  # of the whole process: its runtime, weights, KV cache, workspace
    # Part of the process that every model needs: Python, torch, kernels.
    runtime_bytes: int = field(default=0, kw_only=True)
    context: int  # tokens that each sequence may reach
    batch: int = 1  # sequences side by side
    tps: float | None = None  # tokens per second of all sequences together, decoding at the end of the context

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "context", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.tps is not None and not 0 < self.tps < float("inf"):
            raise InputError(f"tps is {self.tps}, expected more than 0 tokens per second")

    @property
    def model_bytes(self) -> int:
        """Bytes that the runtime leaves to the model; below 0 if the runtime alone does not fit."""
        return self.memory_bytes - self.runtime_bytes
