"""The grids that GPTQ rounds to: a format's own, fitted group by group while the columns are rounded."""

from abc import ABC, abstractmethod

import numpy as np

from quant.errors import InputError
from quant.extension import import_kernels
from quant.formats import Format, Fp4Format, IntGroupFormat
from quant.formats.grid import Grid, GridFormat
from quant.formats.importance import importance_blocks
from quant.formats.small_floats import E2M1_VALUES, to_e2m1
from quant.present import present
from quant.qtensor import QTensor

# Factors of the ends of a group's range in the search for a grid of least squared error. On the linears of
# the reference model, 2 to 4 bits in groups of 32 to 128, a search down to a quarter finds nothing more and four times
# as many steps change the error of the outputs by less than 1 %.
SHRINKS = np.array([1 - step / 40 for step in range(21)], dtype=np.float32)


class Grids(ABC):
    """The grids of one weight [N, K], filled in as groups are fitted.

    group_size   input features that are fitted together
    qmin, qmax   codes
    """

    levels: np.ndarray | None = None  # of codes 0, 1, ...; None: a code is its own level, from qmin to qmax
    group_size: int
    qmin: int
    qmax: int

    def prepare(self, weight: np.ndarray) -> None:  # noqa: B027  (most formats have nothing of the whole weight)
        """weight [N, K] float32, before any column is rounded"""

    @abstractmethod
    def fit(self, group: int, values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The grid of a group, kept for `pack`.

        values      [N, group_size] float32, in the order of the format
        importance  [group_size] float32 > 0, cost of a squared error
        returns     scale, offset [N, S] float32, S = 1 or group_size, as the format will dequantize them
        """

    @abstractmethod
    def pack(self, q: np.ndarray, g_idx: np.ndarray | None) -> QTensor:
        """q [N, K] int8 in the order of the input features; g_idx [K] int32 or None"""


class IntGroupGrids(Grids):
    """Integers: one scale and zero point a group and row, of its range or (`search`) of least squared error."""

    def __init__(self, fmt: IntGroupFormat, shape: tuple[int, int], search: bool) -> None:
        fmt.check_shape(shape)
        self._format, self._search = fmt, search
        self.group_size = fmt.group_size or shape[1]
        self.qmin, self.qmax = fmt.qmin, fmt.qmax
        self._scale = np.empty((shape[0], fmt.num_groups(shape[1])), dtype=np.float16)
        self._zero_point = np.empty(self._scale.shape, dtype=np.int8)

    def fit(self, group: int, values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale, zero_point = self._least_error(values, importance) if self._search else self._format.fit(values)
        self._scale[:, group], self._zero_point[:, group] = scale, zero_point
        scale = scale.astype(np.float32)[:, None]  # exact products: 11 bits of a float16 and 8 of a code
        return scale, -scale * zero_point.astype(np.float32)[:, None]

    def _least_error(self, values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # `fit` reads the ends alone. They are on the first axis in memory: a reduction over two neighbours costs NumPy
        # a call for each pair.
        ends = np.stack([values.min(axis=1), values.max(axis=1)])[:, None] * SHRINKS[:, None]  # [2, trials, N]
        scale, zero_point = self._format.fit(np.moveaxis(ends, 0, -1))  # [trials, N]
        lowest = np.float32(self.qmin) - zero_point
        best = search_grid(values, importance, scale.astype(np.float32), lowest, self.qmax - self.qmin)
        rows = np.arange(len(values))
        return scale[best, rows], zero_point[best, rows]

    def pack(self, q: np.ndarray, g_idx: np.ndarray | None) -> QTensor:
        zero_point = None if self._format.symmetric else self._zero_point
        return self._format.pack(q, self._scale, zero_point, g_idx if self._format.group_size else None)


class BlockGrids(Grids):
    """GGUF blocks: the format's own search, fitted to the values of a block at its turn."""

    def __init__(self, fmt: GridFormat, shape: tuple[int, int], effort: str) -> None:
        fmt.check_row(shape[1])
        self._format, self._shape, self._effort = fmt, shape, effort
        self.group_size = fmt.block_size
        self._grids: list[Grid | None] = [None] * (shape[1] // fmt.block_size)
        zero = np.zeros((1, fmt.block_size), dtype=np.float32)
        some = fmt.fit_grid(zero)
        self.qmin, self.qmax = some.qmin, some.qmax

    def fit(self, group: int, values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = importance_blocks(importance, self.group_size, self.group_size)  # [1, block_size]
        grid = self._format.fit_grid(values, np.repeat(weights, len(values), axis=0), self._effort)
        self._grids[group] = grid
        return grid.scale, grid.offset

    def pack(self, q: np.ndarray, g_idx: np.ndarray | None) -> QTensor:
        size = self.group_size
        blocks = [
            self._format.pack_grid(present(grid), q[:, i * size : (i + 1) * size]) for i, grid in enumerate(self._grids)
        ]
        return QTensor(self._format.name, self._shape, {"blocks": np.concatenate(blocks, axis=1)})


class Fp4Grids(Grids):
    """4-bit floats: a scale per group and row, of its largest magnitude or (`search`) of least squared error."""

    def __init__(self, fmt: Fp4Format, shape: tuple[int, int], search: bool) -> None:
        fmt.check_matrix(shape)
        self._format, self._num_candidates = fmt, None if search else 1
        self.group_size, self.levels = fmt.block_size, E2M1_VALUES
        self.qmin, self.qmax = 0, len(E2M1_VALUES) - 1
        self._scale = np.empty((shape[0], shape[1] // fmt.block_size), dtype=np.uint8)
        self._global_scale = np.ones((shape[0], 1), dtype=np.float32)

    def prepare(self, weight: np.ndarray) -> None:
        # Feedback makes weights larger. Half of the range of scales is room for that, and costs no precision.
        self._global_scale = self._format.global_scale_of(2 * weight)

    def fit(self, group: int, values: np.ndarray, importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        absmax = np.abs(values).max(axis=1, keepdims=True)
        least = np.full((len(values), 1), np.inf, dtype=np.float32)
        best = np.zeros((len(values), 1), dtype=np.uint8)
        for candidate in self._format.scale_candidates(absmax, self._global_scale)[: self._num_candidates]:
            scale = self._format.scale_values(candidate, self._global_scale)
            error = E2M1_VALUES[to_e2m1(values / scale)] * scale - values
            cost = (error * error * importance).sum(axis=1, keepdims=True)
            best, least = np.where(cost < least, candidate, best), np.minimum(cost, least)
        self._scale[:, group] = best[:, 0]
        scale = self._format.scale_values(best, self._global_scale)
        return scale, np.zeros_like(scale)

    def pack(self, q: np.ndarray, g_idx: np.ndarray | None) -> QTensor:
        return self._format.pack(q.astype(np.uint8), self._scale, self._global_scale)


def make_grids(fmt: Format, shape: tuple[int, int], search: bool, effort: str) -> Grids:
    """raises InputError for a format whose codes are no steps of a grid, or that cannot hold the shape"""
    if isinstance(fmt, IntGroupFormat):
        return IntGroupGrids(fmt, shape, search)
    if isinstance(fmt, GridFormat):
        return BlockGrids(fmt, shape, effort)
    if isinstance(fmt, Fp4Format):
        return Fp4Grids(fmt, shape, search)
    raise InputError(
        f"gptq rounds to evenly spaced grids, {fmt.name} has none; expected integers (w4g128), Q*_0, Q*_1 or a K-quant"
    )


def search_grid_ref(
    values: np.ndarray, cost: np.ndarray, scale: np.ndarray, lowest: np.ndarray, steps: int
) -> np.ndarray:
    """Which of several grids has the least sum of cost * error^2 for each row, the first where several have it.

    values         [N, columns] float32
    cost           [columns] float32
    scale, lowest  [trials, N] float32: the grid is scale * n, scale above 0, n whole in lowest..lowest + steps
    returns        [N] int64, the trial
    """
    errors = []
    for step, first in zip(scale[:, :, None], lowest[:, :, None], strict=True):
        nearest = step * np.clip(np.rint(values / step), first, first + np.float32(steps))
        errors.append(np.square(values - nearest) @ cost)
    return np.argmin(errors, axis=0)


_kernels = import_kernels("cpu_kernels.gptq")
search_grid = search_grid_ref if _kernels is None else _kernels.gptq_search_grid
