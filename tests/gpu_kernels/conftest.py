"""Runs every kernel test on the GPU if there is one, and under Triton's interpreter everywhere.

The interpreter is chosen when Triton is imported, for a whole process. So it has a process of its own here, and the
tests that compile kernels, like everything else, keep the ordinary Triton.
"""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import triton
from support.interpreted import INTERPRETER_IS_BROKEN, interpreting_process

HAS_GPU = torch.cuda.is_available()


@dataclass(frozen=True)
class Runner:
    """Calls a launcher of gpu_kernels where its tensors live; CPU tensors are shared memory, so writes are seen."""

    device: str
    pool: ProcessPoolExecutor | None

    @property
    def interpreted(self) -> bool:
        return self.pool is not None

    def __call__(self, launcher, *args, **kwargs):
        if self.interpreted:
            return self.pool.submit(launcher, *args, **kwargs).result()
        return launcher(*args, **kwargs)


@pytest.fixture(scope="session")
def interpreter():
    if INTERPRETER_IS_BROKEN:
        pytest.skip(f"the interpreter of Triton {triton.__version__} cannot loop with NumPy {np.__version__}")
    with interpreting_process() as pool:
        yield Runner("cpu", pool)


needs_gpu = [pytest.mark.cuda, pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU: interpreted and compiled only")]


@pytest.fixture(scope="session", params=["interpreter", pytest.param("cuda", marks=needs_gpu)])
def run(request):
    """A Runner for each way that this machine has."""
    if request.param == "cuda":
        return Runner("cuda", None)
    return request.getfixturevalue("interpreter")


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: runs on a CUDA GPU; skipped where there is none")


def pytest_terminal_summary(terminalreporter):
    """One line that names the parts that the run did not exercise."""
    done = Counter()
    for report in terminalreporter.getreports("passed"):
        if report.when == "call" and "gpu_kernels/" in report.nodeid:
            done["interpreted"] += "interpreter" in report.nodeid
            done["compiled"] += "compile.py" in report.nodeid
            done["run on a GPU"] += "cuda" in report.keywords
    if not done:
        return
    told = ", ".join(f"{count} tests {how}" if count else f"NOT {how}" for how, count in done.items())
    terminalreporter.write_line(f"gpu kernels: {told}", yellow=0 in done.values())
