"""Speed of a layer of experts: `pytest --benchmark-only tests/cpu_kernels/test_bench_moe.py`.

The cases of `qbench kernels --only moe_` one by one (the command itself compares them with kt-kernel's), and tokens of
which half have the same two experts among theirs, compared with tokens that are spread evenly.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import pytest
from support.kernel_benchmark import time_contender

import cpu_kernels
from qbench.kernels import moe_benchmarks as module
from qbench.kernels.benchmark import OURS
from qbench.kernels.moe_benchmarks import BACKENDS_OF, SHAPES, Layer, moe_benchmarks, route

TOKENS = (1, 4, 16, 64, 512)


@pytest.fixture(scope="module", params=[(s, f) for s in SHAPES for f in BACKENDS_OF], ids=lambda p: f"{p[0][1]}-{p[1]}")
def of_shape(request):
    shape, format_name = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHAPES", (shape,))
        return {one.tokens: one for one in moe_benchmarks(format_name, TOKENS, cpu_kernels.get_num_threads())}


@pytest.mark.parametrize("tokens", TOKENS, ids="M={}".format)
def test_experts_are_timed(benchmark, of_shape, tokens):
    time_contender(benchmark, of_shape[tokens], OURS, tokens)


@pytest.mark.parametrize("format_name", ["q4_k", "q8_0", "bf16"])
def test_skewed_routing(benchmark, format_name):
    """Half of the 512 tokens on two experts, compared with tokens that are spread evenly: the same operations."""
    hidden, ffn, num_experts, num_chosen = SHAPES[0]
    layer = Layer(format_name, hidden, ffn, num_experts)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((512, hidden), dtype=np.float32)
    y = np.full_like(x, np.nan)
    balanced_ms = []

    def call(chosen: np.ndarray, weights: np.ndarray) -> None:
        layer.experts.forward(x, chosen, weights, out=y)

    def next_round():
        even = route(512, num_experts, num_chosen, rng)
        balanced_ms.append(milliseconds(lambda: call(*even)))
        return skewed(*route(512, num_experts, num_chosen, rng)), {}

    benchmark.group = f"experts {format_name} M=512, skewed"
    benchmark.pedantic(call, setup=next_round, rounds=9, warmup_rounds=1)
    balanced = np.median(balanced_ms[1:])
    benchmark.extra_info |= {
        "balanced_ms": balanced,
        "skewed_over_balanced": benchmark.stats.stats.median * 1e3 / balanced,
    }


def skewed(chosen: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first half of the tokens have experts 0 and 1 among theirs."""
    for its in chosen[: len(chosen) // 2]:
        others = its[its > 1]
        its[:] = [0, 1, *others][: len(its)]
    return chosen, weights


def milliseconds(run: Callable[[], None]) -> float:
    start = perf_counter()
    run()
    return (perf_counter() - start) * 1e3
