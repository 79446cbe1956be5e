"""Every kernel at the shapes of real models, as rows: `qbench kernels`."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import cpu_kernels
from qbench.harness.host.clocks import CLOCKS, check_clock
from qbench.harness.host.machine import machine
from qbench.harness.speed.peaks import measure_peak
from qbench.harness.subject import running_isa
from qbench.kernels.linear_benchmarks import COMPUTE_BOUND_TOKENS
from qbench.kernels.measure import Ceilings, measure, summarize, timing_protocol
from qbench.kernels.registry import benchmarks
from qbench.progress import Progress
from quant.errors import InputError


def run_kernels(
    only: str | Sequence[str],
    tokens: tuple[int, ...],
    threads: int,
    busy: float,
    clock: str = "wall",
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """A row a kernel, shape and number of tokens; those of a shape come together.

    Bandwidth and peak are measured before and after each shape, and the larger counts, so that a slow spell of the
    machine flatters no kernel.

    only     as `benchmarks` takes it
    busy     share of the machine that others took when this began
    clock    "wall", or "cpu" for the time that this process gets, which others hardly change: of one thread alone
    raises   InputError where no kernel has `only` in its name, or more than one thread is asked for with "cpu"
    """
    check_clock(clock, threads)
    found_any = False
    # A benchmark holds its weights, so it is measured before the next is made.
    for (op, shape, arithmetic), group in groupby(
        benchmarks(only, tokens, threads), key=lambda one: (one.op, one.shape, one.arithmetic)
    ):
        found_any = True
        if progress:
            progress(0, 0, f"{op} {shape}")
        before = ceilings(arithmetic, threads)
        measured = [(benchmark, measure(benchmark, CLOCKS[clock])) for benchmark in group]
        after = ceilings(arithmetic, threads)
        most = Ceilings(
            max(before.bytes_per_s, after.bytes_per_s),
            {arithmetic: max(before.ops_per_s[arithmetic], after.ops_per_s[arithmetic])},
        )
        about = {
            "threads": threads,
            "clock": clock,
            "protocol": timing_protocol(clock),
            "isa": running_isa(),
            "machine": machine()["id"],
            "bandwidth_bytes_per_s": [before.bytes_per_s, after.bytes_per_s],
            "peak_ops_per_s": [before.ops_per_s[arithmetic], after.ops_per_s[arithmetic]],
            "busy_before": busy,
            "load_average": list(os.getloadavg()),
        }
        for benchmark, found in measured:
            yield summarize(benchmark, found, most) | about
    if not found_any:
        raise InputError(
            f"no kernel that is timed at {', '.join(map(str, tokens))} tokens has {_told(only)} in its name; attention "
            f"is timed at 1 and from {COMPUTE_BOUND_TOKENS} on; `qbench selftest` lists the ops"
        )


def _told(only: str | Sequence[str]) -> str:
    return repr(only) if isinstance(only, str) else " or ".join(map(repr, only))


def ceilings(arithmetic: str, threads: int) -> Ceilings:
    return Ceilings(cpu_kernels.measure_read_bandwidth(threads), {arithmetic: measure_peak(arithmetic, threads)})
