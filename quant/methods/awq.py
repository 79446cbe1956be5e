"""AWQ: weights that meet large activations are scaled up before they are rounded, and ranges of groups are clipped."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.methods.awq_clip import quantize_clipped
from quant.methods.base import Layer, Method
from quant.methods.folding import FLOATS, Fold, FoldedLayer, find_folds
from quant.methods.folding_search import best_scale
from quant.present import present
from quant.qtensor import QTensor
from quant.stats import InputStats

SMALLEST_MAGNITUDE = 1e-4  # of a channel's activations: one that was hardly seen is not scaled down beyond this
# Queries and keys meet in a product, so a clipped weight's outputs alone do not show its error.
UNCLIPPED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")


@dataclass(frozen=True, slots=True)
class Awq(Method):
    """num_ratios   exponents tried for each scale: 0, 1 / num_ratios, .. below 1
    pairs        whether output and down projections are scaled as well, through the linears before them
    clip         whether the range of each group is searched, for integer formats

    s_j = mean|X_j|^ratio, with the ratio of the least output error; the sample's rows represent all inputs.
    source  Lin et al. 2023, arXiv:2306.00978, eq. 4 and 5, and section 5.1 for clipping
    """

    num_ratios: int = 20
    pairs: bool = True
    clip: bool = True

    name: ClassVar[str] = "awq"
    paper: ClassVar[str | None] = "arXiv:2306.00978"
    stands_alone: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"sample"})

    def __post_init__(self) -> None:
        if not isinstance(self.num_ratios, int) or isinstance(self.num_ratios, bool) or self.num_ratios < 1:
            raise InputError(f"awq: num_ratios is {self.num_ratios!r}, expected a whole number above 0")
        for option in ("pairs", "clip"):
            if not isinstance(getattr(self, option), bool):
                raise InputError(f"awq: {option} is {getattr(self, option)!r}, expected true or false")

    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        folded = FoldedLayer(layer)
        for fold in find_folds(layer, pairs=self.pairs):
            candidates = self._candidates(fold, folded, stats)
            folded.apply(fold, best_scale(folded, fold, stats, candidates))
        return {name: self._quantize(name, folded, stats) for name in folded.weights} | folded.vectors

    def _candidates(self, fold: Fold, folded: FoldedLayer, stats: Mapping[str, InputStats]) -> list[np.ndarray]:
        """[C] float32 each; the first is 1 throughout"""
        quantized = [name for name in fold.readers if folded.layer.formats[name] not in FLOATS]
        of_x = np.max([np.abs(present(stats[name].sample)).mean(axis=0) for name in quantized], axis=0)  # [K]
        of_x = fold.per_channel(of_x, folded.num_channels(fold)).astype(np.float64)  # [C]
        read = of_x > 0
        candidates = []
        for i in range(self.num_ratios):
            scale = np.maximum(of_x, SMALLEST_MAGNITUDE) ** (i / self.num_ratios)
            if read.any():
                scale /= np.sqrt(scale[read].max() * scale[read].min())
            candidates.append(np.where(read, scale, 1).astype(np.float32))
        return candidates

    def _quantize(self, name: str, folded: FoldedLayer, stats: Mapping[str, InputStats]) -> QTensor:
        fmt, weight = get_format(folded.layer.formats[name]), folded.weights[name]
        if not self.clip or not isinstance(fmt, IntGroupFormat) or name.endswith(UNCLIPPED):
            return fmt.quantize(weight)
        return quantize_clipped(fmt, weight, present(stats[name].sample) / folded.divisors.get(name, np.float32(1)))
