"""Threads whose number changes no result: each computes whole tasks, and torch inside a task uses one thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quant.late import LateModule

if TYPE_CHECKING:
    import torch
else:
    torch = LateModule("torch")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """One thread of torch inside the block, as sums split over threads depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def workers(num_threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool in which torch computes on one thread.

    torch keeps the number of threads for each calling thread and for the process, so both are set.
    """
    with (
        one_torch_thread(),
        ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        yield pool
