"""Times of GPU work, and the ceilings of this GPU that they are held against."""

from collections.abc import Callable

import torch

REPETITIONS = 30
# A graph's own start takes microseconds; over this many calls it is lost in their sum.
CALLS_PER_REPLAY = 64
# Operands are taken in turn from sets of this many times the L2 in all, so none is found there.
SETS_OVER_L2 = 4
COPY_BYTES = 2**30
PRODUCT_SIZE = 8192


def num_sets(bytes_per_call: int, l2_bytes: int) -> int:
    """How many operand sets to rotate over."""
    return max(2, -(-SETS_OVER_L2 * l2_bytes // bytes_per_call))


def time_interleaved(calls: dict[str, Callable[[int], None]], sets: int) -> dict[str, list[float]]:
    """Microseconds a call, REPETITIONS samples for each name, taken in turn so that drift meets all alike.

    calls  name -> function of a set's index; may allocate nothing that outlives it
    sets   operand sets to rotate over
    """
    graphs = {name: _capture(call, sets) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for repetition in range(-3, REPETITIONS):  # three to warm up
        for name, (graph, num_calls) in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if repetition >= 0:
                samples[name].append(start.elapsed_time(end) * 1e3 / num_calls)
    return samples


def _capture(call: Callable[[int], None], sets: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """(a graph of whole rounds over the sets, its number of calls): replaying it leaves the host's time out."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)  # compiles, loads, makes handles: none of which can be captured
    torch.cuda.current_stream().wait_stream(side)
    num_calls = sets * -(-CALLS_PER_REPLAY // sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(num_calls):
            call(index % sets)
    return graph, num_calls


def measure_ceilings(device: str) -> dict[str, float]:
    """copy_bytes_s (read plus written), int8_ops_s and bf16_ops_s (2 * 8192**3 a product), on random data."""
    source = torch.randint(-128, 128, (COPY_BYTES,), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    a, b = torch.randint(-128, 128, (2, PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.int8, device=device)
    acc = torch.empty(PRODUCT_SIZE, PRODUCT_SIZE, dtype=torch.int32, device=device)
    a_bf16, b_bf16 = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE, dtype=torch.bfloat16, device=device)
    y = torch.empty_like(a_bf16)
    work = {
        "copy_bytes_s": (2 * COPY_BYTES, lambda _: target.copy_(source)),
        "int8_ops_s": (2 * PRODUCT_SIZE**3, lambda _: torch._int_mm(a, b.T, out=acc)),
        "bf16_ops_s": (2 * PRODUCT_SIZE**3, lambda _: torch.matmul(a_bf16, b_bf16.T, out=y)),
    }
    samples = time_interleaved({name: call for name, (_, call) in work.items()}, sets=1)
    return {name: amount / median(samples[name]) * 1e6 for name, (amount, _) in work.items()}


def median(samples: list[float]) -> float:
    return torch.tensor(samples, dtype=torch.float64).quantile(0.5).item()
