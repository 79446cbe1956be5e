"""SmoothQuant: outliers of the activations moved into the weights, as far as both can bear."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats import Format, get_format
from quant.methods.base import Layer, Method
from quant.methods.folding import FLOATS, Fold, FoldedLayer, find_folds
from quant.methods.folding_search import best_scale
from quant.methods.static import static_input_scale, with_input_scale
from quant.present import present
from quant.qtensor import QTensor
from quant.source import SharedInfo
from quant.stats import InputStats

SMALLEST_SCALE = np.float32(1e-5)  # a channel that was hardly seen is not blown up beyond this
AUTO = "auto"
AUTO_ALPHAS = np.linspace(0, 1, 21)


@dataclass(frozen=True, slots=True)
class SmoothQuant(Method):
    """alpha   migration strength from 0 (all to the weights' ranges) to 1 (all to the activations'), or "auto": of
            0, 0.05, .. 1 and no smoothing at all the one with the least output error, for each input of a layer
    pairs   whether the inputs of output and down projections are smoothed as well, through the linears before them

    s_j = max|X_j|^alpha / max|W_j|^(1 - alpha), where W is all that reads X.
    source  Xiao et al. 2022, arXiv:2211.10438, eq. 4
    """

    alpha: float | str = 0.5
    pairs: bool = True

    name: ClassVar[str] = "smoothquant"
    paper: ClassVar[str | None] = "arXiv:2211.10438"
    stands_alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        is_share = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool) and 0 <= self.alpha <= 1
        if self.alpha != AUTO and not is_share:
            raise InputError(f"smoothquant: alpha is {self.alpha!r}, expected a number from 0 to 1, or {AUTO}")
        if not isinstance(self.pairs, bool):
            raise InputError(f"smoothquant: pairs is {self.pairs!r}, expected true or false")

    @property
    def needs(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # the only one that varies
        return frozenset({"absmax", "sample"} if self.alpha == AUTO else {"absmax"})

    def shared(self, fmt: Format, row_size: int) -> tuple[SharedInfo, ...]:
        return static_input_scale(fmt)

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        folded = FoldedLayer(layer)
        for fold in find_folds(layer, pairs=self.pairs):
            folded.apply(fold, self._scale(fold, folded, stats))
        weights = {name: _quantize(name, weight, folded, stats) for name, weight in folded.weights.items()}
        return weights | folded.vectors

    def _scale(self, fold: Fold, folded: FoldedLayer, stats: Mapping[str, InputStats]) -> np.ndarray:
        """[C] float32"""
        quantized = [name for name in fold.readers if folded.layer.formats[name] not in FLOATS]
        of_x = np.max([present(stats[name].absmax) for name in quantized], axis=0)  # [K]
        of_weight = np.max([np.abs(folded.weights[name]).max(axis=0) for name in quantized], axis=0)
        of_x, of_weight = (fold.per_channel(each, folded.num_channels(fold)) for each in (of_x, of_weight))  # [C]
        if not isinstance(self.alpha, str):
            return smoothing_scale(of_x, of_weight, self.alpha)
        candidates = [np.ones_like(of_x), *(smoothing_scale(of_x, of_weight, alpha) for alpha in AUTO_ALPHAS)]
        return best_scale(folded, fold, stats, candidates)


def smoothing_scale(x_absmax: np.ndarray, weight_absmax: np.ndarray, alpha: float) -> np.ndarray:
    """Eq. 4 per channel; 1 if a channel carries nothing or nothing reads it."""
    alive = (x_absmax > 0) & (weight_absmax > 0)
    of_x, of_weight = (np.where(alive, each, 1).astype(np.float64) for each in (x_absmax, weight_absmax))
    scale = of_x**alpha / of_weight ** (1 - alpha)
    return np.where(alive, np.maximum(scale, SMALLEST_SCALE), 1).astype(np.float32)


def _quantize(name: str, weight: np.ndarray, folded: FoldedLayer, stats: Mapping[str, InputStats]) -> QTensor:
    fmt = get_format(folded.layer.formats[name])
    return with_input_scale(fmt, fmt.quantize(weight), present(stats[name].absmax) / folded.divisors.get(name, 1))
