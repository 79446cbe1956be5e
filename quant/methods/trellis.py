"""LDLQ onto a trellis: 16 columns of a weight become bits at a time, with the errors of earlier ones fed into them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats import Format, TrellisFormat, get_format
from quant.formats.trellis import SIDE, matrix_of, tiles_of, turn, turn_size
from quant.linalg.error_feedback import Factor, Solver, check_solver_device, make_solver
from quant.methods.base import Layer, Method
from quant.methods.gptq import FLOAT_FORMATS, by_inputs, check_damp, checked_hessian, factorize_damped
from quant.methods.gptq_order import plain_order
from quant.qtensor import QTensor
from quant.stats import InputStats
from quant.turn import turn_runs


@dataclass(frozen=True, slots=True)
class Trellis(Method):
    """damp     term added to the diagonal of the Hessian, as for gptq
    device   where the feedback is computed: "cpu", "cuda", or "auto": the GPU if there is one

    Weight and Hessian are turned first, as the format says. Each tile is encoded near the values that would make up
    for all errors so far; the path through the trellis has no feedback within a tile.

    source  Tseng et al. 2024, arXiv:2406.11235 (QTIP), algorithm 5: BlockLDLQ, without fine-tuning
    """

    damp: float = 0.01
    device: str = "auto"

    name: ClassVar[str] = "trellis"
    paper: ClassVar[str | None] = "arXiv:2406.11235"
    needs: ClassVar[frozenset[str]] = frozenset({"hessian"})
    rows_stand_alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_damp(self.name, self.damp)
        check_solver_device(self.device)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format; weights whose inputs are one object share its factor.

        raises   InputError naming the weight: no statistics, NaN, a Hessian that no damping makes positive definite
        """
        made: dict[str, QTensor] = {}
        solver, last, factor = make_solver(self.device), None, None
        for name in by_inputs(layer.weights, stats):
            weight, fmt, inputs = layer.weights[name], get_format(layer.formats[name]), stats.get(name)
            try:
                if fmt.name in FLOAT_FORMATS:
                    made[name] = fmt.quantize(weight)
                    continue
                fmt = checked_format(fmt, weight)
                if factor is None or inputs is not last:
                    factor, damp = self._factor(inputs, weight.shape[1], solver)
                    last = inputs
                    if damp > self.damp:
                        layer.remarks[name] = f"damping raised from {self.damp:g} to {damp:g} of the mean diagonal"
                made[name] = round_tiles(fmt, weight, factor, solver)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        return {name: made[name] for name in layer.weights}

    def check_format(self, fmt: Format, row_size: int) -> None:
        if not isinstance(fmt, TrellisFormat):
            raise InputError(f"trellis rounds to trellis-w2, -w3 or -w4, got {fmt.name}")
        fmt.check_row(row_size)

    def _factor(self, stats: InputStats | None, num_columns: int, solver: Solver) -> tuple[Factor, float]:
        hessian, size = checked_hessian(stats, num_columns), turn_size(num_columns)
        turned = turn_runs(turn_runs(hessian, size).T, size)
        alive = np.zeros(num_columns, dtype=bool)
        return factorize_damped(turned, alive, plain_order(num_columns, SIDE).columns, self.damp, solver)


def checked_format(fmt: Format, weight: np.ndarray) -> TrellisFormat:
    """raises InputError for another format, a shape that it cannot hold, NaN and inf"""
    if not isinstance(fmt, TrellisFormat):
        raise InputError(f"trellis rounds to trellis-w2, -w3 or -w4, got {fmt.name}")
    fmt.check_matrix(weight.shape)
    if not np.isfinite(weight).all():
        raise InputError("trellis needs finite weights, got NaN or inf; check the source")
    return fmt


def round_tiles(fmt: TrellisFormat, weight: np.ndarray, factor: Factor, solver: Solver) -> QTensor:
    """weight [N, K] float32; factor of the turned Hessian in the order of its columns"""
    num_rows, row_size = weight.shape
    turned = turn(weight)
    scale = fmt.scale_of(turned)
    feedback = solver.feedback(factor, turned, np.arange(row_size))
    packed = np.empty((row_size // SIDE, num_rows // SIDE, fmt.code.num_words), dtype=np.uint16)
    for column, end in enumerate(range(SIDE, row_size + 1, SIDE)):
        packed[column] = fmt.code.encode(tiles_of(feedback.expect(end) / scale))
        values = matrix_of(fmt.code.decode(packed[column]), (num_rows, SIDE)) * scale
        # On a grid without steps every weight becomes the offset.
        feedback.round(end, np.zeros_like(values), values, 0, 1)
    return fmt.pack(np.ascontiguousarray(packed.transpose(1, 0, 2)), scale, weight.shape)
