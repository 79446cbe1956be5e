"""GPTQ: each column is rounded to the grid, and its error is made up for by the columns still to come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quant.errors import InputError
from quant.formats import Format, IntGroupFormat, TurnedFp4, get_format
from quant.linalg.error_feedback import (
    Factor,
    Solver,
    check_solver_device,
    make_solver,
    round_to_levels,
    solver_of_columns,
)
from quant.methods.base import Layer, Method, check_effort
from quant.methods.gptq_grids import Grids, make_grids
from quant.methods.gptq_order import ColumnOrder, act_order, group_aware_order, plain_order
from quant.qtensor import QTensor
from quant.source import SharedInfo
from quant.stats import InputStats

FLOAT_FORMATS = ("f32", "f16", "bf16")  # nothing to feed back: they take their own rounding

# Damping after a factorization that failed: ten times as much, and at least this. Above the mean of the diagonal
# there is nothing left of a Hessian but its diagonal.
SMALLEST_INCREASED_DAMP = 1e-3
LARGEST_DAMP = 1.0

# Columns that are rounded at a time where their grids are known beforehand: as the usual group, enough for the
# product with all earlier errors to run at full speed.
STATIC_COLUMNS = 128


Shared = tuple[int, int, bool, bool]  # all that decides a factor: statistics, size of groups, solver, turn


class Solved(NamedTuple):
    """The common data of linears that share an input."""

    order: ColumnOrder
    factor: Factor
    dead: np.ndarray  # [K] bool: input features that calibration never saw other than 0
    damp: float  # with which the factorization went well


@dataclass(frozen=True, slots=True)
class Gptq(Method):
    """Error feedback along the Cholesky factor of the Hessian, onto integers in groups and onto GGUF's grids.

    act_order      round the columns in the order of their importance, the diagonal of the Hessian. Groups of integers
                   are then formed in that order (g_idx), unless static_groups
    group_aware    without act_order: groups by importance, and columns by importance within each. Costs no bytes
    static_groups  fit every grid to the weights as they are, before any error is fed back
    damp           term added to the diagonal, as a part of its mean (percdamp in the paper's code). If the
                   factorization fails: ten times as much (at least 0.001), and so on up to 1
    mse            integers search each group's range for least squared error, weighted by the cost of an error;
                   otherwise it is the range of the weights. GGUF's grids always search
    effort         of that search, "fast" or "best"
    device         where a layer is solved: "cpu", "cuda", or "auto": the GPU if there is one

    source   Frantar et al., arXiv 2210.17323, algorithm 1; the arithmetic is that of cpu_kernels/gptq.py
    """

    act_order: bool = False
    group_aware: bool = True
    static_groups: bool = False
    damp: float = 0.01
    mse: bool = True
    effort: str = "fast"
    device: str = "auto"

    name: ClassVar[str] = "gptq"
    paper: ClassVar[str | None] = "arXiv:2210.17323"
    needs: ClassVar[frozenset[str]] = frozenset({"hessian"})

    def __post_init__(self) -> None:
        check_damp(self.name, self.damp)
        for option in ("act_order", "group_aware", "static_groups", "mse"):
            if not isinstance(getattr(self, option), bool):
                raise InputError(f"gptq: {option} is {getattr(self, option)!r}, expected true or false")
        check_effort(self.effort)
        check_solver_device(self.device)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; weights whose inputs are one object share its factor.

        A damping that had to be raised is among the layer's remarks.
        raises   InputError naming the weight: no statistics, no tokens, NaN, a Hessian that no damping makes
                 positive definite, or a format that has no grid
        """
        quantized: dict[str, QTensor] = {}
        shared: dict[Shared, Solved] = {}
        solver = make_solver(self.device)
        for name in by_inputs(layer.weights, stats):
            try:
                quantized[name] = self._quantize(name, layer, stats, solver, shared)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        return {name: quantized[name] for name in layer.weights}

    def check_format(self, fmt: Format, row_size: int) -> None:
        make_grids(fmt, (1, row_size), self.mse, self.effort)
        self._check_order(fmt)

    def _check_order(self, fmt: Format) -> None:
        if self.act_order and not self.static_groups and fmt.block_size > 1 and not isinstance(fmt, IntGroupFormat):
            raise InputError(
                f"{fmt.name} keeps no order of columns, so act_order needs static_groups: true; "
                "group_aware orders within its blocks"
            )

    def shared(self, fmt: Format, row_size: int) -> tuple[SharedInfo, ...]:
        in_order = not self.act_order or self.static_groups
        if in_order or not isinstance(fmt, IntGroupFormat) or fmt.num_groups(row_size) == 1:
            return ()
        return (SharedInfo("g_idx", (row_size,), "int32"),)

    def _quantize(
        self,
        name: str,
        layer: Layer,
        stats: Mapping[str, InputStats],
        solver: Solver,
        shared: dict[Shared, Solved],
    ) -> QTensor:
        weight, fmt = layer.weights[name], get_format(layer.formats[name])
        if fmt.name in FLOAT_FORMATS:
            return fmt.quantize(weight)
        if weight.ndim != 2:
            raise InputError(f"gptq rounds matrices [N, K], got shape {weight.shape}")
        if not np.isfinite(weight).all():
            raise InputError("gptq needs finite weights, got NaN or inf; check the source")
        grids = make_grids(fmt, weight.shape, self.mse, self.effort)
        self._check_order(fmt)
        solver = solver if grids.levels is None else solver_of_columns(solver)
        turned = fmt if isinstance(fmt, TurnedFp4) else None
        key = (id(stats.get(name)), grids.group_size, grids.levels is None, turned is not None)
        if key not in shared:
            shared.clear()  # one factor at a time: each is as large as half a Hessian
            shared[key] = self._solve(stats.get(name), weight.shape[1], grids.group_size, solver, turned)
        if shared[key].damp > self.damp:
            layer.remarks[name] = f"damping raised from {self.damp:g} to {shared[key].damp:g} of the mean diagonal"
        return self._round(weight if turned is None else turned.turn(weight), grids, shared[key], solver)

    def _solve(
        self, stats: InputStats | None, num_columns: int, group_size: int, solver: Solver, turned: TurnedFp4 | None
    ) -> Solved:
        hessian = checked_hessian(stats, num_columns)
        if turned is not None:
            hessian = np.ascontiguousarray(turned.turn(np.ascontiguousarray(turned.turn(hessian).T)))
        diagonal = hessian.diagonal()
        dead = diagonal == 0
        order = self._order(np.where(dead, 0, diagonal), group_size)
        factor, damp = factorize_damped(hessian, dead, order.columns, self.damp, solver)
        return Solved(order, factor, dead, damp)

    def _order(self, importance: np.ndarray, group_size: int) -> ColumnOrder:
        if self.act_order:
            one_group = group_size == len(importance)
            return act_order(importance, group_size, static_groups=self.static_groups or one_group)
        if self.group_aware:
            return group_aware_order(importance, group_size)
        return plain_order(len(importance), group_size)

    def _round(self, weight: np.ndarray, grids: Grids, solved: Solved, solver: Solver) -> QTensor:
        if solved.dead.any():
            weight = np.where(solved.dead, np.float32(0), weight)  # it multiplies nothing, and a range it would widen
        grids.prepare(weight)
        static = self.static_groups or grids.group_size == weight.shape[1]
        round_columns = _round_static if static else _round_fitting
        q = round_columns(weight, grids, solved, solver)
        return grids.pack(q, solved.order.g_idx)


def check_damp(method: str, damp: float) -> None:
    """raises InputError for a damping that is no number from 0 to 1"""
    if isinstance(damp, bool) or not isinstance(damp, int | float) or not 0 <= damp <= LARGEST_DAMP:
        raise InputError(f"{method}: damp is {damp!r}, expected 0 to {LARGEST_DAMP:g}, a part of the mean diagonal")


def by_inputs(names: Iterable[str], stats: Mapping[str, InputStats]) -> list[str]:
    """The names in their order, but those whose statistics are one object follow each other."""
    names = list(names)
    first_of = {id(stats.get(name)): index for index, name in reversed(list(enumerate(names)))}
    return sorted(names, key=lambda name: first_of[id(stats.get(name))])


def factorize_damped(
    hessian: np.ndarray, dead: np.ndarray, columns: np.ndarray, damp: float, solver: Solver
) -> tuple[Factor, float]:
    """The factor of the Hessian in this order of columns, and the damping with which the factorization went well.

    dead     [K] bool: features whose diagonal becomes 1
    raises   InputError if no damping makes it positive definite
    """
    diagonal = hessian.diagonal()
    for step in damping_steps(damp):
        damped = np.where(dead, 1, diagonal + np.float32(step) * diagonal.mean()).astype(np.float32)
        factor = solver.factorize(hessian, damped, columns)
        if factor is not None:
            return factor, step
    raise InputError(
        f"its Hessian is not positive definite even with damping {LARGEST_DAMP:g}; calibrate again, on more text"
    )


def damping_steps(damp: float) -> list[float]:
    """The damping asked for, and those tried in turn if it is too little."""
    steps = [damp]
    while steps[-1] < LARGEST_DAMP:
        steps.append(min(max(10 * steps[-1], SMALLEST_INCREASED_DAMP), LARGEST_DAMP))
    return steps


def checked_hessian(stats: InputStats | None, num_columns: int) -> np.ndarray:
    """raises InputError if there is no Hessian, or no usable one"""
    if stats is None or stats.num_tokens == 0:
        raise InputError("no calibration token reached it, so it has no Hessian; calibrate on more text")
    hessian = stats.hessian
    if hessian is None or hessian.shape != (num_columns, num_columns):
        got = "none" if hessian is None else f"shape {hessian.shape}"
        raise InputError(f"Hessian: got {got}, expected [{num_columns}, {num_columns}]; calibrate again")
    diagonal = hessian.diagonal()
    # A NaN or inf in any row reaches its sum; the factorization itself sees only half of the matrix.
    if not np.isfinite(diagonal).all() or (diagonal < 0).any() or not np.isfinite(hessian.sum()):
        raise InputError("Hessian: got NaN, inf or a negative diagonal, expected X^T X; calibrate again")
    if not diagonal.any():
        raise InputError("every input that calibration saw was 0, so it has no Hessian; calibrate on other text")
    return hessian


def _round_fitting(weight: np.ndarray, grids: Grids, solved: Solved, solver: Solver) -> np.ndarray:
    """Codes [N, K] int8 with the grid of each group fitted to its weights at its turn, after all feedback before."""
    order, size = solved.order, grids.group_size
    feedback = solver.feedback(solved.factor, weight, order.columns)
    importance = np.square(solved.factor.diagonal)
    q = np.empty(weight.shape, dtype=np.int8)
    for begin in range(0, weight.shape[1], size):
        columns = order.columns[begin : begin + size]
        # Place of each column within its group in the format. In act-order that is the order of rounding.
        place = np.arange(size) if order.g_idx is not None else columns % size
        values, cost = np.empty((len(weight), size), dtype=np.float32), np.empty(size, dtype=np.float32)
        values[:, place] = feedback.expect(begin + size)
        cost[place] = importance[begin : begin + size]
        scale, offset = grids.fit(int(order.group[columns[0]]), values, cost)
        q[:, columns] = _round_columns(feedback, begin + size, scale, offset, place, grids)
    return q


def _round_static(weight: np.ndarray, grids: Grids, solved: Solved, solver: Solver) -> np.ndarray:
    """Codes [N, K] int8 with every grid fitted to the weights as they are."""
    order, size = solved.order, grids.group_size
    cost = np.empty(weight.shape[1], dtype=np.float32)
    cost[order.columns] = np.square(solved.factor.diagonal)
    fitted = []
    for group, begin in enumerate(range(0, weight.shape[1], size)):
        part = slice(begin, begin + size)
        fitted.append(grids.fit(group, np.ascontiguousarray(weight[:, part]), cost[part]))
    scale, offset = (np.concatenate(arrays, axis=1) for arrays in zip(*fitted, strict=True))  # [N, groups * S]
    column_of = np.arange(weight.shape[1]) // (weight.shape[1] // scale.shape[1])  # feature -> column of scale
    feedback = solver.feedback(solved.factor, weight, order.columns)
    q = np.empty(weight.shape, dtype=np.int8)
    for begin in range(0, weight.shape[1], STATIC_COLUMNS):
        columns = order.columns[begin : begin + STATIC_COLUMNS]
        q[:, columns] = _round_columns(feedback, begin + len(columns), scale, offset, column_of[columns], grids)
    return q


def _round_columns(feedback, end: int, scale: np.ndarray, offset: np.ndarray, place: np.ndarray, grids: Grids):
    """Codes of the next columns, of which column c has the grid place[c] of scale and offset (or the only one)."""
    if scale.shape[1] > 1:
        scale, offset = np.ascontiguousarray(scale[:, place]), np.ascontiguousarray(offset[:, place])
    if grids.levels is not None:
        return round_to_levels(feedback, end - len(place), end, scale, grids.levels)
    return feedback.round(end, scale, offset, grids.qmin, grids.qmax)
