"""Speed of GPTQ's parts and the same in torch: `pytest --benchmark-only tests/cpu_kernels/test_bench_gptq.py`.

extra_info holds, with operations counted as multiplications and additions:
    factor   K^3 / 3, one Cholesky factor
    chain    4 K^3 / 3, the paper's factor, inverse and factor of the inverse
    round    N K^2 + N K G, the feedback of every column to all later ones, and once more within each group of G
    share    operations / fp32 peak of this session / the fastest round: 1 is all that the machine can do
"""

import numpy as np
import pytest
import torch
from support.close import assert_close

import cpu_kernels
from cpu_kernels.gptq import GptqFeedback, gptq_factorize

NUM_ROWS, SIZE, GROUP = 2048, 2048, 128


@pytest.fixture(scope="module")
def peak() -> float:
    return cpu_kernels.measure_fp32_peak(cpu_kernels.get_num_threads())[0]


@pytest.fixture(scope="module")
def hessian() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((4096, SIZE)).astype(np.float32))
    return (x.T @ x + 40 * torch.eye(SIZE)).numpy()


def factor_of(hessian: np.ndarray):
    return gptq_factorize(hessian, hessian.diagonal().copy(), np.arange(SIZE))


def paper_chain(hessian: np.ndarray) -> torch.Tensor:
    lower = torch.linalg.cholesky(torch.from_numpy(hessian))
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)


def record(benchmark, operations: float, peak: float) -> None:
    seconds = benchmark.stats.stats.min
    benchmark.extra_info |= {
        "giga_ops": operations / seconds / 1e9,
        "share": operations / peak / seconds,
        "threads": cpu_kernels.get_num_threads(),
        "isa": cpu_kernels.chosen_isa("gptq"),
    }


def test_factor_is_timed(benchmark, hessian, peak):
    # U = R^-1: the diagonals are each other's inverse.
    expected = 1 / paper_chain(hessian).diagonal()
    assert_close(factor_of(hessian).diagonal, expected, rtol=2**-24 * SIZE)
    benchmark.group = f"factor {SIZE}"
    benchmark.pedantic(lambda: factor_of(hessian), rounds=5, warmup_rounds=1)
    record(benchmark, SIZE**3 / 3, peak)


def test_paper_chain(benchmark, hessian, peak):
    torch.set_num_threads(cpu_kernels.get_num_threads())
    benchmark.group = f"factor {SIZE}"
    benchmark.pedantic(lambda: paper_chain(hessian), rounds=5, warmup_rounds=1)
    record(benchmark, 4 * SIZE**3 / 3, peak)


def test_rounding_is_timed(benchmark, hessian, peak):
    factor = factor_of(hessian)
    weight = np.random.default_rng(1).standard_normal((NUM_ROWS, SIZE)).astype(np.float32)
    scale = np.full((NUM_ROWS, 1), 0.4, dtype=np.float32)

    def run() -> np.ndarray:
        feedback = GptqFeedback(factor, weight, np.arange(SIZE))
        for end in range(GROUP, SIZE + 1, GROUP):
            feedback.expect(end)
            q = feedback.round(end, scale, 0 * scale, -8, 7)
        return q

    assert np.abs(run()).max() == 8
    benchmark.group = f"round {NUM_ROWS}x{SIZE}, groups of {GROUP}"
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    record(benchmark, NUM_ROWS * SIZE**2 + NUM_ROWS * SIZE * GROUP, peak)
