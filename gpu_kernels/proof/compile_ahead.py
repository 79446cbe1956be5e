"""Compiles the kernels of a run, on every core, into the cache in which Triton's launcher looks first."""

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from gpu_kernels.launch import Launch
from gpu_kernels.proof.compile import compile_launch, source
from gpu_kernels.proof.problems import Problem, problems_of, refusal

JOBS_PER_PROCESS = 8  # a process takes about as long to import Triton as a few kernels take to compile


def launches_of(problems: Iterable[Problem], arch: int) -> list[Launch]:
    """Every different kernel that the problems launch on this architecture, on meta tensors."""
    found = {}
    for problem in problems:
        if refusal(problem, arch):
            continue
        for launch in problem.launches(arch):
            found.setdefault((source(launch, arch).hash(), str(launch.options)), launch)
    return list(found.values())


def compile_problems(ops: Iterable[str], arch: int) -> None:
    """raises  whatever Triton raises on a kernel that does not compile for this architecture"""
    counts = [(op, len(launches_of(problems_of(op), arch))) for op in ops]
    jobs = [(op, arch, index) for op, count in counts for index in range(count)]
    workers = min(os.cpu_count() or 1, -(-len(jobs) // JOBS_PER_PROCESS))
    if workers < 2:
        return  # the launches themselves compile as fast
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(_compile, jobs):
            pass


def _compile(job: tuple[str, int, int]) -> None:
    op, arch, index = job
    compile_launch(launches_of(problems_of(op), arch)[index], arch)
