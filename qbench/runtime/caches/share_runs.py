"""Runs of queries over a share of the keys, each of which a kernel for whole sequences can attend by."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor


class Run(NamedTuple):
    """Queries start .. end - 1; the last of them sees the first `num_seen` keys.

    is_causal  each query sees one key more than the query before; False: all see the same keys
    """

    start: int
    end: int
    num_seen: int
    is_causal: bool


def share_runs(num_seen: Tensor) -> Iterator[Run]:
    """num_seen  [T] int64: keys that each query sees, of which consecutive ones differ by 0 or 1"""
    seen, start = num_seen.tolist(), 0
    while start < len(seen):
        end = start + 1
        step = seen[end] - seen[start] if end < len(seen) else 0
        while end < len(seen) and seen[end] - seen[end - 1] == step:
            end += 1
        yield Run(start, end, seen[end - 1], is_causal=step == 1)
        start = end
