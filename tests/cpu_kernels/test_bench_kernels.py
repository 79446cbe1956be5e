"""The linears of `qbench kernels` one by one: `pytest --benchmark-only tests/cpu_kernels -k bench_kernels`.

One round is one run of a case, a number of equal calls on different weights. A contender is checked before it is timed.
extra_info holds the figures of one call. In the command itself contenders take turns, and ratios come from it.
"""

import pytest
from support.kernel_benchmark import time_contender

import cpu_kernels
from qbench.kernels.benchmark import OURS, Benchmark
from qbench.kernels.timed import benchmarks

PEERS = {f"linear_{name}": ("llama.cpp", "torch-bfloat16") for name in ("q4_0", "q4_k", "q6_k", "q8_0")} | {
    "linear_w8a8": ("onednn-int8", "torch-int8"),
    "linear_llm_int8": ("torch-llm-int8",),
    "linear_bf16": ("llama.cpp", "torch-bfloat16"),
    "linear_f16": ("llama.cpp", "torch-bfloat16"),
    "linear_f32": ("llama.cpp", "torch-float32"),
}
CASES = [(op, name) for op, peers in PEERS.items() for name in (OURS, *peers)]
SHAPES, TOKENS = ("8192x2048", "2048x8192"), (1, 4, 16, 64, 512)


def case_of(op: str, shape: str, tokens: int) -> Benchmark:
    found = benchmarks(op, (tokens,), cpu_kernels.get_num_threads())
    return next(one for one in found if one.op == op and one.shape == shape)


@pytest.mark.parametrize("tokens", TOKENS, ids="M={}".format)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op, name", CASES, ids="-".join)
def test_linear_is_timed(benchmark, op, name, shape, tokens):
    time_contender(benchmark, case_of(op, shape, tokens), name, tokens)
