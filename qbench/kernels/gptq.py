"""GPTQ's parts: the factor, the rounding of columns with feedback, the search of grids."""

from collections.abc import Iterator

import numpy as np

from cpu_kernels.gptq import GptqFeedback, coefficients_ref, gptq_factorize, gptq_search_grid, targets_ref
from qbench.kernels.case import Deviation, Kernel, Problem, deviation

SHAPES = ((1, 1), (3, 63), (70, 131))  # N, K; a vector holds 16 rows, a block of the factor 64 columns
STEP, OFFSET = np.float32(0.1), np.float32(0.05)
NUM_TRIALS = 5
SEED = 12


def gptq() -> list[Kernel]:
    return [Kernel("gptq", problems)]


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    for num_rows, size in SHAPES:
        x = rng.standard_normal((2 * size + 8, size)) + rng.standard_normal((2 * size + 8, 1))
        hessian = (x.T @ x + 0.5 * np.eye(size)).astype(np.float32)
        weight = rng.standard_normal((num_rows, size)).astype(np.float32)
        yield factor_problem(hessian)
        yield round_problem(hessian, weight)
        yield search_problem(weight)


def factor_of(hessian: np.ndarray, isa: str):
    return gptq_factorize(hessian, hessian.diagonal().copy(), np.arange(len(hessian)), isa=isa)


def factor_problem(hessian: np.ndarray) -> Problem:
    size = len(hessian)

    def run(isa: str) -> tuple[np.ndarray, None]:
        return factor_of(hessian, isa).coefficients(0, size), None

    def check(got: np.ndarray) -> Deviation:
        condition = np.linalg.cond(hessian.astype(np.float64)) ** 0.5
        return deviation(got, coefficients_ref(hessian) - np.eye(size), 2**-23 * condition * (size + 8) ** 0.5)

    return Problem(f"factor K={size}", run, check)


def round_problem(hessian: np.ndarray, weight: np.ndarray) -> Problem:
    num_rows, size = weight.shape

    def run(isa: str) -> tuple[np.ndarray, str]:
        feedback = GptqFeedback(factor_of(hessian, isa), weight, np.arange(size), isa=isa)
        grid, offset = np.full((num_rows, 1), STEP), np.full((num_rows, 1), OFFSET)
        return feedback.round(size, grid, offset, -128, 127), feedback.last_isa

    def check(q: np.ndarray) -> Deviation:
        """How much further than half of one step each code is from the float64 target: float32 may not see which is
        nearer.
        """
        rounded, coefficients = (STEP * q + OFFSET).astype(np.float32), coefficients_ref(hessian)
        targets = np.stack([targets_ref(weight, rounded[:, :c], coefficients) for c in range(size)], axis=1)
        half_step = float(STEP) / 2
        beyond = np.maximum(np.abs(rounded - targets) - half_step, 0.0)
        return deviation(beyond, np.zeros_like(beyond), half_step * 2**-10)

    return Problem(f"round N={num_rows} K={size}", run, check)


def search_problem(weight: np.ndarray) -> Problem:
    num_rows, size = weight.shape
    rng = np.random.default_rng(SEED + 1)
    cost = rng.lognormal(0, 1, size).astype(np.float32)
    scale = np.linspace(0.1, 0.6, NUM_TRIALS, dtype=np.float32)[:, None] * np.ones((1, num_rows), dtype=np.float32)
    lowest = np.where(np.arange(num_rows) % 2, -8, -5).astype(np.float32) * np.ones_like(scale)

    def run(isa: str) -> tuple[np.ndarray, None]:
        return gptq_search_grid(weight, cost, scale, lowest, 15, isa=isa), None

    def check(best: np.ndarray) -> Deviation:
        """The error of the chosen grid against the least of all; float32 may not distinguish the two."""
        steps = weight / scale.astype(np.float64)[:, :, None]  # [trials, N, K]
        nearest = np.clip(np.rint(steps), lowest[:, :, None], lowest[:, :, None] + 15) * scale[:, :, None]
        errors = np.square(weight - nearest) @ cost.astype(np.float64)  # [trials, N]
        least = errors.min(axis=0)
        return deviation(errors[best, np.arange(num_rows)], least, 2**-23 * (size + 8) * least)

    return Problem(f"search N={num_rows} K={size}", run, check)
