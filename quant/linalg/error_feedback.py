"""Rounding errors fed along the columns of a weight: on the CPU by the C++ kernels, elsewhere by torch.

Their common result is defined in cpu_kernels/gptq.py. The kernels give the same bits on every CPU and with any number
of threads; torch's sums depend on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from quant.errors import InputError
from quant.extension import import_kernels
from quant.late import LateModule

if TYPE_CHECKING:
    import torch
else:
    torch = LateModule("torch")

DEVICES = ("auto", "cpu", "cuda")
SMALLEST_PIVOT = 2.0**-22  # of its first value: below, a pivot is the rounding of its sum (as in the kernels)


class Factor(Protocol):
    """R of H = R R^T, upper triangular, in the order of the columns."""

    @property
    def diagonal(self) -> np.ndarray:
        """[K] float32; its square is the cost of a squared error of 1 in a column after the later ones compensate for
        it
        """
        ...


class Feedback(Protocol):
    """The rows of one weight on their way through the columns."""

    def expect(self, end: int) -> np.ndarray:
        """The next columns up to `end` as an infinitely fine grid would leave them, [N, columns] float32."""
        ...

    def round(self, end: int, scale: np.ndarray, offset: np.ndarray, qmin: int, qmax: int) -> np.ndarray:
        """The next columns up to `end` rounded to scale * q + offset.

        scale, offset  [N, S] float32, each for columns / S of them
        returns        q [N, columns] int8 in qmin..qmax
        """
        ...


class Solver(Protocol):
    """A place where the arithmetic runs."""

    def factorize(self, hessian: np.ndarray, diagonal: np.ndarray, order: np.ndarray) -> Factor | None:
        """The factor of a Hessian whose column c is column order[c]; None if it is not positive definite.

        hessian   [K, K] float32, of which the diagonal is not looked at
        diagonal  [K] float32, the diagonal instead, damping included
        order     [K] int64
        """
        ...

    def feedback(self, factor: Factor, weight: np.ndarray, order: np.ndarray) -> Feedback:
        """weight [N, K] float32, not yet in `order`"""
        ...


class CpuSolver:
    """The kernels of cpu_kernels."""

    def __init__(self) -> None:
        from cpu_kernels import gptq  # raises ImportError where the kernels are not built

        self._kernels: Any = gptq  # types of its names are not known

    def factorize(self, hessian: np.ndarray, diagonal: np.ndarray, order: np.ndarray) -> Factor | None:
        return self._kernels.gptq_factorize(np.ascontiguousarray(hessian), diagonal, order)

    def feedback(self, factor: Factor, weight: np.ndarray, order: np.ndarray) -> Feedback:
        return self._kernels.GptqFeedback(factor, np.ascontiguousarray(weight), order)


class TorchFactor:
    """R on a torch device, normalised to a unit diagonal."""

    def __init__(self, factor: torch.Tensor) -> None:
        self._diagonal = factor.diagonal().clone()
        self.coefficients = factor / self._diagonal  # [K, K], unit upper triangular

    @property
    def diagonal(self) -> np.ndarray:
        return self._diagonal.cpu().numpy()


class TorchFeedback:
    """The columns in a loop of small operations, as a GPU can run them without a kernel of its own."""

    def __init__(self, factor: TorchFactor, weight: torch.Tensor) -> None:
        self._coefficients = factor.coefficients
        self._weight = weight  # [N, K]
        self._error = torch.zeros_like(weight)  # rounded - weight, of the columns done
        self._done = 0

    def _targets(self, end: int) -> torch.Tensor:
        """Columns [done, end) with the feedback of those done, [N, columns]."""
        done = slice(0, self._done)
        earlier = self._error[:, done] @ self._coefficients[done, self._done : end]
        return self._weight[:, self._done : end] - earlier

    def expect(self, end: int) -> np.ndarray:
        columns = slice(self._done, end)
        # expected = target - (expected - weight) @ (M - 1) with M the unit triangle, solved for `expected`:
        # expected @ M = target + weight @ M - weight
        triangle = self._coefficients[columns, columns]
        weight = self._weight[:, columns]
        known = self._targets(end) + weight @ triangle - weight
        return torch.linalg.solve_triangular(triangle, known, upper=True, left=False, unitriangular=True).cpu().numpy()

    def round(self, end: int, scale: np.ndarray, offset: np.ndarray, qmin: int, qmax: int) -> np.ndarray:
        begin, target = self._done, self._targets(end)
        q = torch.empty(target.shape, dtype=torch.int8, device=target.device)
        scales, offsets = (torch.from_numpy(grid).to(target.device) for grid in (scale, offset))
        columns_per_scale = target.shape[1] // scales.shape[1]
        for c in range(end - begin):
            block = slice(begin, begin + c)
            value = target[:, c] - self._error[:, block] @ self._coefficients[block, begin + c]
            a, b = scales[:, c // columns_per_scale], offsets[:, c // columns_per_scale]
            steps = torch.where(a == 0, torch.zeros_like(a), (value - b) / torch.where(a == 0, torch.ones_like(a), a))
            codes = steps.round().clamp(qmin, qmax)
            self._error[:, begin + c] = a * codes + b - self._weight[:, begin + c]
            q[:, c] = codes.to(torch.int8)
        self._done = end
        return q.cpu().numpy()


class TorchSolver:
    """Plain torch on any of its devices."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def factorize(self, hessian: np.ndarray, diagonal: np.ndarray, order: np.ndarray) -> Factor | None:
        backwards = torch.from_numpy(order).to(self._device).flip(0)
        matrix = torch.from_numpy(hessian).to(self._device)[backwards][:, backwards]
        matrix.diagonal().copy_(torch.from_numpy(diagonal).to(self._device)[backwards])
        lower, failed_at = torch.linalg.cholesky_ex(matrix)
        above_rounding = lower.diagonal().square() > SMALLEST_PIVOT * matrix.diagonal()  # False for NaN
        if int(failed_at) or not bool(above_rounding.all()):
            return None
        return TorchFactor(lower.flip(0, 1))

    def feedback(self, factor: Factor, weight: np.ndarray, order: np.ndarray) -> Feedback:
        assert isinstance(factor, TorchFactor)
        ordered = torch.from_numpy(weight).to(self._device)[:, torch.from_numpy(order).to(self._device)]
        return TorchFeedback(factor, ordered.contiguous())


def check_solver_device(device: str) -> None:
    """raises InputError for an unknown device, or for "cuda" without a GPU"""
    if device not in DEVICES:
        raise InputError(f"device {device!r}, expected one of {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda': torch finds no GPU here; use 'auto' or 'cpu'")


def make_solver(device: str = "auto") -> Solver:
    """Solver on this device: "cuda", "cpu", or "auto", which is the GPU if there is one.

    raises   InputError for an unknown device, or for "cuda" without a GPU
    """
    check_solver_device(device)
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return TorchSolver("cuda")
    return TorchSolver("cpu") if import_kernels("cpu_kernels.gptq") is None else CpuSolver()


def solver_of_columns(solver: Solver) -> Solver:
    """A solver that rounds any number of columns after it was asked for more, which the C++ kernels do not."""
    return TorchSolver("cpu") if isinstance(solver, CpuSolver) else solver


def round_to_levels(feedback: Feedback, begin: int, end: int, scale: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Columns [begin, end) rounded to the nearest of scale * levels, with the feedback of all columns before each.

    A column takes a call of its own, whose grid is its rounded values: code 1 of a grid of step `value` is `value`.

    scale     [N, 1] or [N, columns] float32, above 0
    levels    [L] float32
    returns   index of the level, [N, columns] int8
    """
    order = np.argsort(levels, kind="stable")
    middles = (levels[order][1:] + levels[order][:-1]) / 2
    q = np.empty((len(scale), end - begin), dtype=np.int8)
    for column in range(end - begin):
        step = scale[:, min(column, scale.shape[1] - 1)]
        target = feedback.expect(begin + column + 1)[:, 0]
        code = order[np.searchsorted(middles, target / step)]
        value = np.ascontiguousarray(levels[code] * step, dtype=np.float32)[:, None]
        feedback.round(begin + column + 1, value, np.zeros_like(value), 1, 1)
        q[:, column] = code
    return q
