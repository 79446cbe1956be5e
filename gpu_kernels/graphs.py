"""Decode steps replayed from CUDA graphs: one captured for each bucket of batch sizes, over buffers that stay in place.

A step of one token per sequence launches hundreds of kernels that run for microseconds each, less than a launch takes
from the host. A graph launches all of them at once, but its addresses and shapes are those of its capture. So inputs
are copied into buffers of a bucket's size, and the rows past the batch hold padding: values with which the step
computes something harmless and writes nowhere (slot -1, length 0).

    batch of 5        | a b c d e |
    bucket of 8       | a b c d e . . . |      . padding; results of those rows are cut off

Results are in the memory that the buckets share, until the next replay of any of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Step = Callable[[dict[str, Tensor]], Tensor]
# A call -> the function that runs it again, and its result: `on_cuda` or `eagerly`.
Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], Any], Tensor]]


@dataclass(frozen=True, slots=True)
class Input:
    """One of a step's inputs: of a batch of B its shape is [B, *shape]."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    padding: float | int


def bucket_sizes(max_batch: int) -> list[int]:
    """1, 2, 4, then multiples of 8, of 16 from 64 on and of 32 from 256 on, up to max_batch, which is one itself.

    From a batch of 17 on less than a third of its bucket is padding. The buckets share their memory, so that more of
    them cost the time of their capture.
    """
    steps = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, max_batch + 32, 32)]
    return sorted({size for size in steps if size < max_batch} | {max_batch})


class DecodeGraphs:
    """A step at every bucket's size. All of them are captured at once, so no capture happens in the middle of
    serving.
    """

    def __init__(
        self,
        step: Step,
        inputs: dict[str, Input],
        buckets: Sequence[int],
        *,
        device: torch.device | str,
        capture: Capture | None = None,
    ) -> None:
        """
        step     inputs [bucket, ...] -> result [bucket, ...]; runs on padding alone while it is captured
        buckets  batch sizes to capture, ascending
        capture  default `on_cuda` over one pool of memory
        raises   ValueError for buckets that are no ascending sizes
        """
        if not buckets or sorted(set(buckets)) != list(buckets) or buckets[0] < 1:
            raise ValueError(f"got buckets {list(buckets)}, expected ascending sizes from 1 on")
        self.buckets = list(buckets)
        self._inputs = inputs
        self._buffers = {
            name: torch.full((self.buckets[-1], *each.shape), each.padding, dtype=each.dtype, device=device)
            for name, each in inputs.items()
        }
        capture = capture or on_cuda(torch.cuda.graph_pool_handle())
        # The largest first: its memory of the pool suffices for the others.
        self._captured = {size: capture(self._call(step, size)) for size in reversed(self.buckets)}

    def _call(self, step: Step, size: int) -> Callable[[], Tensor]:
        rows = {name: buffer[:size] for name, buffer in self._buffers.items()}
        return lambda: step(rows)

    def bucket(self, batch: int) -> int:
        """The least bucket that takes the batch. raises ValueError past the largest"""
        if not 0 < batch <= self.buckets[-1]:
            raise ValueError(f"got a batch of {batch}, expected 1 to {self.buckets[-1]}")
        return self.buckets[bisect_left(self.buckets, batch)]

    def __call__(self, values: dict[str, Tensor]) -> Tensor:
        """The step's result [B, ...]: a view of memory that the next replay overwrites, of this bucket or another.

        values  [B, *shape] of each input's type, on any device
        raises  ValueError for other names, shapes or types, before anything is copied
        """
        batch = self._check(values)
        size = self.bucket(batch)
        for name, value in values.items():
            buffer = self._buffers[name]
            buffer[:batch].copy_(value, non_blocking=True)
            buffer[batch:size].fill_(self._inputs[name].padding)
        replay, result = self._captured[size]
        replay()
        return result[:batch]

    def _check(self, values: dict[str, Tensor]) -> int:
        if values.keys() != self._inputs.keys():
            raise ValueError(f"got inputs {sorted(values)}, expected {sorted(self._inputs)}")
        batch = len(next(iter(values.values())))
        for name, value in values.items():
            each = self._inputs[name]
            if list(value.shape) != [batch, *each.shape] or value.dtype != each.dtype:
                got = f"{name} {value.dtype} {list(value.shape)}"
                raise ValueError(f"got {got}, expected {each.dtype} {[batch, *each.shape]}")
        return batch


WARM_UPS = 2  # the first compiles and loads, the second shows that nothing is left to be made


def on_cuda(pool: Any) -> Capture:
    """Captures into graphs whose temporaries share a pool: they never run at the same time."""

    def capture(call: Callable[[], Tensor]) -> tuple[Callable[[], Any], Tensor]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = call()
        return graph.replay, result

    return capture


def eagerly(call: Callable[[], Tensor]) -> tuple[Callable[[], Any], Tensor]:
    """No graph: the same buffers and buckets, launched kernel by kernel, for comparison with a graph."""
    result = call().clone()
    return lambda: result.copy_(call()), result
