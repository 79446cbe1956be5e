"""Checks each op on a GPU in a process of its own, so that a kernel that breaks the GPU's context spoils no other."""

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from gpu_kernels.proof.check import wrong_results
from gpu_kernels.proof.problems import problems_of, refusal

# Oracles in float64 take some 10 GB for the largest problems, and the host is busy between launches.
MAX_PROCESSES = 6


def wrong_apart(ops: Iterable[str], device: str, arch: int) -> list[str]:
    """`wrong_results` of all problems of the ops that do not refuse this architecture."""
    workers = min(MAX_PROCESSES, os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1) as pool:
        found = [pool.submit(_wrong_of, op, device, arch) for op in ops]
        return [line for wrong in found for line in wrong.result()]


def _wrong_of(op: str, device: str, arch: int) -> list[str]:
    try:
        return wrong_results([problem for problem in problems_of(op) if not refusal(problem, arch)], device, arch)
    except Exception as error:  # of an oracle: other ops are checked nevertheless
        return [f"{op}: its oracle raises {type(error).__name__}: {str(error).strip().splitlines()[0]}"]
