"""Compiling a kernel for an absent GPU: to a cubin, with the assembler's report."""

import ast
import multiprocessing
import os
import re
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.compiler.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from gpu_kernels.launch import Launch
from gpu_kernels.proof.problems import Problem, problems_of, refusal

ARCHITECTURES = (80, 90, 100)

parsing, parse_alone = threading.Lock(), ast.parse
JOBS_PER_PROCESS = 8  # a process takes about as long to import Triton as a few kernels take to compile


def parse_in_turn(*arguments, **options) -> ast.AST:
    """ast.parse for one thread at a time: in two, CPython 3.11 counts their recursion together, and may raise
    SystemError.

    source   https://github.com/python/cpython/issues/106905
    """
    with parsing:
        return parse_alone(*arguments, **options)


ast.parse = parse_in_turn  # Triton parses a kernel whenever it compiles, in whatever thread


def compile_launch(launch: Launch, arch: int) -> CompiledKernel:
    """The kernel as this launch would compile it; `.asm["cubin"]` holds the machine code.

    launch  may hold meta tensors, which count as 16-byte aligned
    arch    compute capability times ten
    """
    return triton.compile(source(launch, arch), target=GPUTarget("cuda", arch, 32), options=launch.options)


def source(launch: Launch, arch: int) -> ASTSource:
    """The source that Triton's launcher would compile on that architecture, to the last attribute that its cache's key
    depends on.

    How it specializes arguments by type, value and alignment differs between its versions. So this is its own binder,
    which is no public interface; a test holds the result against a launch.
    """
    kernel, backend = launch.kernel, make_backend(GPUTarget("cuda", arch, 32))
    assert isinstance(kernel, triton.JITFunction)  # an interpreted kernel cannot be compiled
    given = launch.arguments | launch.options
    bound = create_function_from_signature(kernel.signature, kernel.params, backend)(**given)
    _, signature, constants, attributes = kernel._pack_args(backend, given, *bound)
    return ASTSource(kernel, signature, constants, attributes)


def resource_usage(cubin: bytes, folder: Path) -> dict[str, int]:
    """Resources of one thread or program of the cubin, e.g. {"REG": 168, "STACK": 0, "LOCAL": 0, ...}.

    STACK and LOCAL are spilled bytes per thread. Reads with the cuobjdump that comes with Triton.
    """
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    told = subprocess.run(
        [cuobjdump, "--dump-resource-usage", path], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", told.stdout)}


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
