"""Choosing a fold's scale by the error of its readers' outputs, on a sample of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from quant.formats import ActivationFormat, dequantize, get_format
from quant.late import LateModule
from quant.methods.folding import FLOATS, Fold, FoldedLayer
from quant.present import present
from quant.stats import InputStats
from quant.workers import workers

if TYPE_CHECKING:
    import torch
else:
    torch = LateModule("torch")


class ReaderError:
    """How far a quantized linear's outputs are from its own, whichever way its inputs are scaled.

    weight   [N, K] float32
    x        [S, K] float32, its inputs
    absmax   [K] float32, of all its inputs
    """

    def __init__(self, format_name: str, weight: np.ndarray, x: np.ndarray, absmax: np.ndarray) -> None:
        self.format = get_format(format_name)
        self.weight = weight
        self.x = x
        self.absmax = absmax
        self.y = matmul(x, weight)  # [S, N]
        self.power = float(np.square(self.y, dtype=np.float64).sum())

    def __call__(self, scale: np.ndarray) -> float:
        """||y - y_quantized||^2 / ||y||^2 with features of the weight multiplied by scale [K], inputs divided by it"""
        qtensor = self.format.quantize(self.weight * scale)
        x = self.x / scale
        if isinstance(self.format, ActivationFormat):
            qtensor = self.format.with_input_absmax(qtensor, (self.absmax / scale).max())
            x = self.format.fake_quantize_input(x, qtensor.shared)
        error = matmul(x, dequantize(qtensor)) - self.y
        return float(np.square(error, dtype=np.float64).sum()) / max(self.power, 1e-30)


def best_scale(
    folded: FoldedLayer, fold: Fold, stats: Mapping[str, InputStats], candidates: Sequence[np.ndarray]
) -> np.ndarray:
    """The one of `candidates`, [C] each, with the smallest error summed over the fold's quantized readers.

    The errors are each linear's own, relative to its outputs: no linear outweighs the others by its units.
    """
    with workers(torch.get_num_threads()) as pool:
        readers = [
            ReaderError(
                folded.layer.formats[name],
                folded.weights[name],
                present(stats[name].sample),
                present(stats[name].absmax),
            )
            for name in fold.readers
            if folded.layer.formats[name] not in FLOATS
        ]
        errors = pool.map(lambda scale: sum(error(scale[fold.channel_of]) for error in readers), candidates)
        return candidates[int(np.argmin(list(errors)))]


def matmul(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x @ weight.T by torch, whose threads `workers` holds at one: the same sums however many there are."""
    return torch.mm(torch.from_numpy(x), torch.from_numpy(weight).T).numpy()
