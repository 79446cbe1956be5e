"""Times of GPU work, by events around replays of a captured graph, over operands that are not in the cache."""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

REPETITIONS = 30
WARM_UPS = 3
# A graph's own start takes microseconds; over this many calls, or this much time, it is lost in their sum.
CALLS_PER_REPLAY = 64
REPLAY_US = 2000
# Operands are taken in turn from sets of this many times the L2 in all, so no operand is found there.
SETS_OVER_L2 = 4
# Operands of a few KB would need thousands of sets; they come out of the cache wherever they are used.
MAX_SETS = 256


def num_sets(bytes_per_call: int, l2_bytes: int) -> int:
    """How many operand sets to rotate over."""
    return min(MAX_SETS, max(2, -(-SETS_OVER_L2 * l2_bytes // max(1, bytes_per_call))))


def time_interleaved(
    calls: dict[str, Callable[[int], Any]], sets: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """(microseconds a call, REPETITIONS samples for each name; why those that are missing could not be run).

    Samples are taken in turn, so that drift affects all equally.

    calls  name -> function of a set's index
    sets   operand sets to rotate over
    """
    graphs, absent = {}, {}
    for name, call in calls.items():
        try:
            graphs[name] = _capture(call, sets)
        except Exception as error:  # peers raise errors of their own if they lack a dtype, a size or this GPU
            absent[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for repetition in range(-WARM_UPS, REPETITIONS):
        for name, (graph, num_calls) in graphs.items():
            us = event_time(graph.replay) / num_calls
            if repetition >= 0:
                samples[name].append(us)
    return samples, absent


def _capture(call: Callable[[int], Any], sets: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """(a graph of whole rounds over the sets, its number of calls): replaying it leaves the host's time out.

    The results of a round are held, so that they too are written to memory of their own.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)  # compiles, loads, makes handles: which cannot be captured
        us = max(1.0, event_time(lambda: call(0)))
    torch.cuda.current_stream().wait_stream(side)
    rounds = -(-min(CALLS_PER_REPLAY, int(REPLAY_US / us)) // sets) or 1
    graph = torch.cuda.CUDAGraph()
    held = deque(maxlen=sets)
    with torch.cuda.graph(graph):
        for index in range(rounds * sets):
            held.append(call(index % sets))
    return graph, rounds * sets


def event_time(work: Callable[[], Any]) -> float:
    """Microseconds, by events on the current stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def median(samples: list[float]) -> float:
    return torch.tensor(samples, dtype=torch.float64).quantile(0.5).item()
