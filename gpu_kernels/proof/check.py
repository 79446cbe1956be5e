"""Whether the kernels are right on a device, before any of them is timed."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from gpu_kernels.proof.problems import Problem, problems_of, refusal

# Oracles in float64 take some 10 GB for the largest problems, and the host is busy between launches.
MAX_PROCESSES = 6


def wrong_results(problems: Iterable[Problem], device: str, arch: int) -> list[str]:
    """One line for each problem and configuration whose result is not its oracle's, or that raises; [] if all agree.

    arch  whose configurations are checked: compute capability times ten
    """
    wrong = []
    for problem in problems:
        expected = problem.op.reference(**problem.operands(device))
        for name, call in {"": problem.op.kernel.call, **problem.variants(arch)}.items():
            if told := _what_is_wrong(problem, call, expected, device):
                wrong.append(" ".join(filter(None, [str(problem), name, told])))
    return wrong


def wrong_when_interpreted(op: str, arch: int) -> list[str]:
    """`wrong_results` of the op's problems that the interpreter can run; to be called where TRITON_INTERPRET is set."""
    return wrong_results([problem for problem in problems_of(op) if problem.is_interpreted], "cpu", arch)


def _what_is_wrong(problem: Problem, call: Callable[..., Any], expected: Any, device: str) -> str:
    """On operands of its own, since a kernel may write into them."""
    operands = problem.operands(device)
    try:
        with poisoned_memory():
            result = call(**operands)
        return "" if problem.agrees(result, expected) else "differs from its oracle"
    except Exception as error:  # all are reported with the problem's name, and the rest goes on
        return f"raises {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


@contextmanager
def poisoned_memory():
    """torch.empty gives NaN and largest integers: an element that a kernel leaves unwritten cannot look right."""
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was)


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
