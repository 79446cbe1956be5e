"""ReadyStatistics: statistics that are known before the run, so that no activations are computed."""

from collections.abc import Mapping

from quant.qtensor import QTensor
from quant.stats import LayerStats, Names, Needs, Quantize


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
