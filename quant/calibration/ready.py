"""Statistics that are known before the run, so that no activations are computed; an importance matrix is one."""

from collections.abc import Mapping

import numpy as np

from quant.qtensor import QTensor
from quant.stats import InputStats, LayerStats, Names, Needs, Quantize


class ReadyStatistics:
    """`quant.calibration.streaming.Statistics` for weights that need not be run."""

    keep: frozenset[str] = frozenset()

    def begin(self, tensors: Mapping[str, QTensor]) -> None:
        pass

    def layer(self, index: int, tensors: Mapping[str, QTensor], needs: Needs) -> LayerStats:
        raise NotImplementedError

    def through(
        self, index: int, tensors: Mapping[str, QTensor], needs: Needs, quantize: Quantize, *, in_steps: bool
    ) -> None:
        quantize(self.layer(index, tensors, needs), tuple(tensors))

    def done(self, index: int) -> None:
        pass

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        raise NotImplementedError


class ImatrixStatistics(ReadyStatistics):
    """importance   canonical name of a weight -> [K] float32, the mean of its squared inputs

    A method that needs more than an importance ends in an InputError, as does a KV format with calibrated scales.
    """

    def __init__(self, importance: Mapping[str, np.ndarray]) -> None:
        self.importance = importance

    def layer(self, index: int, tensors: Mapping[str, QTensor], needs: Needs) -> LayerStats:
        return self._of(tuple(tensors))

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        return self._of(names)

    def _of(self, names: Names) -> LayerStats:
        there = [name for name in names if name in self.importance]
        return LayerStats({name: InputStats(1, None, self.importance[name]) for name in there})
