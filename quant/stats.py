"""InputStats: calibration's statistics of the input of one linear."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from quant.qtensor import QTensor

Names = tuple[str, ...]
Needs = Callable[[Names], frozenset[str]]  # of weights that share an input: which statistics their methods read


@dataclass(frozen=True, slots=True)
class InputStats:
    """Statistics of X [num_tokens, K], the rows that reached a linear. Linears that share an input share one object.

    absmax       [K] float32, max |X_j|; None where only importance is known
    sum_squares  [K] float32, sum of X_j^2; over num_tokens it is llama.cpp's importance
    hessian      [K, K] float32, X^T X; None if nothing asked for it
    sample       [S, K] float32, rows of X spread evenly over the calibration text; None if nothing asked for them
    """

    num_tokens: int
    absmax: np.ndarray | None
    sum_squares: np.ndarray
    hessian: np.ndarray | None = None
    sample: np.ndarray | None = None

    @property
    def importance(self) -> np.ndarray:
        """[K] float32, mean of X_j^2"""
        return self.sum_squares / np.float32(max(self.num_tokens, 1))


@dataclass(frozen=True, slots=True)
class KVStats:
    """Ranges of one decoder layer's keys (after RoPE) and values.

    k_absmax, v_absmax   [G, D] float32: kv heads x channels
    """

    k_absmax: np.ndarray
    v_absmax: np.ndarray


@dataclass(frozen=True, slots=True)
class LayerStats:
    """Calibration's statistics of one decoder layer.

    inputs   canonical name of a linear's weight -> statistics of its input; absent if no token reached it
    kv       None outside the decoder layers, and if only the inputs are known
    extra_tokens   expert -> how many of its tokens the model itself would not have routed to it
    """

    inputs: Mapping[str, InputStats]
    kv: KVStats | None = None
    extra_tokens: Mapping[int, int] = field(default_factory=dict)

    def without_large(self) -> "LayerStats":
        """The same less Hessians and samples."""
        inputs = {name: replace(each, hessian=None, sample=None) for name, each in self.inputs.items()}
        return replace(self, inputs=inputs)


# (statistics, names of the tensors to quantize by them) -> those tensors quantized
Quantize = Callable[[LayerStats, Names], dict[str, QTensor]]


def merge_stats(some: Iterable[LayerStats]) -> LayerStats:
    """Merge statistics of different linears of one layer."""
    inputs: dict[str, InputStats] = {}
    extra: dict[int, int] = {}
    kv = None
    for stats in some:
        inputs |= stats.inputs
        extra |= stats.extra_tokens
        kv = stats.kv or kv
    return LayerStats(inputs, kv, extra)
