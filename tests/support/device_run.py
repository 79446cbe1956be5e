"""Calls a function on a device model: on a GPU, or in a process whose Triton interprets kernels."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from quant.source import Source

UNIT = {"interpreter": 2**-12, "cuda": 2**-9}  # a rounding to float16 or bfloat16, of a number's size, as an rms


@dataclass(frozen=True)
class Run:
    device: str
    pool: Executor | None

    def __call__(self, function: Callable, source: Source) -> Any:
        if self.pool is None:
            return function(source, self.device)
        return self.pool.submit(function, source, self.device).result()
