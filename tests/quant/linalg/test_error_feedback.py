import numpy as np
import pytest
import torch
from support.close import assert_close

from quant.errors import InputError
from quant.linalg.error_feedback import CpuSolver, TorchSolver, make_solver
from quant.methods.gptq_grids import search_grid, search_grid_ref

SIZE, NUM_ROWS = 100, 20
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


def make_case():
    """hessian, its diagonal, an order, a weight"""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, SIZE)) + rng.standard_normal((300, 1))
    hessian = (x.T @ x).astype(np.float32)
    weight = rng.standard_normal((NUM_ROWS, SIZE)).astype(np.float32)
    return hessian, hessian.diagonal() + np.float32(1), rng.permutation(SIZE), weight


@pytest.mark.parametrize("device", DEVICES)
def test_torch_and_the_kernels_agree(device):
    """Two ways to the same numbers: a loop of torch operations, and tiles in C++."""
    hessian, diagonal, order, weight = make_case()
    bound = 2**-24 * SIZE * np.linalg.cond(hessian) ** 0.5
    expected, diagonals, codes = [], [], []
    grid = np.full((NUM_ROWS, 1), 0.1, dtype=np.float32)
    columns = np.linspace(0.1, 0.3, 40 * NUM_ROWS, dtype=np.float32).reshape(NUM_ROWS, 40)
    for solver in (CpuSolver(), TorchSolver(device)):
        factor = solver.factorize(hessian, diagonal, order)
        feedback = solver.feedback(factor, weight, order)
        first = feedback.round(32, grid, 0 * grid, -128, 127)
        fine = feedback.expect(60)
        second = feedback.round(60, grid, grid, -100, 100)
        codes.append(np.concatenate([first, second, feedback.round(100, columns, -columns, -8, 7)], axis=1))
        expected.append(fine)
        diagonals.append(factor.diagonal)
    assert_close(diagonals[1], diagonals[0], rtol=bound)
    assert_close(expected[1], expected[0], atol=bound * np.abs(weight).max())
    np.testing.assert_array_equal(codes[1], codes[0])


@pytest.mark.parametrize("solver", [CpuSolver(), TorchSolver("cpu")], ids=["kernels", "torch"])
@pytest.mark.parametrize("sign", [1, -1], ids=["rank one", "negative"])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(solver, sign):
    hessian = np.full((70, 70), sign, dtype=np.float32)
    assert solver.factorize(hessian, hessian.diagonal().copy(), np.arange(70)) is None


def test_device_is_checked():
    with pytest.raises(InputError, match="device 'gpu', expected one of auto, cpu, cuda"):
        make_solver("gpu")


def test_search_of_the_kernel_is_that_of_numpy():
    rng = np.random.default_rng(2)
    values = rng.standard_normal((70, 64)).astype(np.float32)
    cost = rng.lognormal(0, 1, 64).astype(np.float32)
    scale = np.linspace(0.2, 0.4, 7, dtype=np.float32)[:, None] * np.ones((7, 70), dtype=np.float32)
    lowest = np.full((7, 70), -8, dtype=np.float32)
    np.testing.assert_array_equal(
        search_grid(values, cost, scale, lowest, 15), search_grid_ref(values, cost, scale, lowest, 15)
    )
