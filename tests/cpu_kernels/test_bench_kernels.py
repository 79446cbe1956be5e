"""The cases of `qbench kernels` one by one: `pytest --benchmark-only tests/cpu_kernels -k bench_kernels`.

One round is one run of a case, a number of equal calls on different weights. A contender is checked before it is timed.
extra_info holds the figures of one call. In the command itself contenders take turns, and ratios come from it.
"""

import pytest
from support.kernel_benchmark import time_contender

import cpu_kernels
from qbench.kernels.benchmark import OURS
from qbench.kernels.timed import benchmarks

CASES = ("q4_0", "q4_k", "q6_k", "q8_0")
SHAPE, TOKENS = "8192x2048", (1, 4, 16, 64, 512)


@pytest.fixture(scope="module", params=CASES)
def of_format(request):
    threads = cpu_kernels.get_num_threads()
    found = benchmarks(f"linear_{request.param}", TOKENS, threads)
    return {one.tokens: one for one in found if one.shape == SHAPE and one.op == f"linear_{request.param}"}


@pytest.mark.parametrize("name", [OURS, "llama.cpp", "torch-bfloat16"])
@pytest.mark.parametrize("tokens", TOKENS, ids="M={}".format)
def test_linear_is_timed(benchmark, of_format, tokens, name):
    time_contender(benchmark, of_format[tokens], name, tokens)
