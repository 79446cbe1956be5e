"""Linears that share an input, run as one product."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from qbench.runtime.linear import Linear, choose_linear
from qbench.runtime.norm import RMSNorm
from quant.qtensor import QTensor


class FusedLinears:
    """Linears that read the same input, stacked into one product per format: fewer calls, longer reads.

    call     x [..., K] float32 -> one y [..., N] float32 for each weight, in the order given
             norm: of x, before it is read; residual [..., N]: added to the only y
    """

    def __init__(self, qtensors: Sequence[QTensor], biases: Sequence[Tensor | None], impl: str = "auto") -> None:
        self.groups: list[tuple[Linear, list[int]]] = []  # a product, and the rows of each weight in it
        self.biases = biases
        self.has_bias = any(bias is not None for bias in biases)
        for run in _runs_of_equal_format(qtensors):
            linear = choose_linear(run[0].format, impl).build(concat_rows(run))
            self.groups.append((linear, [qtensor.shape[0] for qtensor in run]))

    @property
    def size_bytes(self) -> int:
        biases = sum(bias.nbytes for bias in self.biases if bias is not None)
        return sum(linear.size_bytes for linear, _ in self.groups) + biases

    @property
    def impl_names(self) -> list[str]:
        """What runs for each weight, in order."""
        return [linear.name for linear, row_counts in self.groups for _ in row_counts]

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        outputs = self._products(x if norm is None else norm(x))
        if residual is None:
            return outputs
        (y,) = outputs
        return (y.add_(residual),)

    def _products(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = [y for linear, row_counts in self.groups for y in linear(x).split_with_sizes(row_counts, -1)]
        if not self.has_bias:
            return tuple(outputs)
        return tuple(y if bias is None else y + bias for y, bias in zip(outputs, self.biases, strict=True))


def _runs_of_equal_format(qtensors: Sequence[QTensor]) -> list[list[QTensor]]:
    runs: list[list[QTensor]] = []
    for qtensor in qtensors:
        if runs and runs[-1][0].format == qtensor.format and _share_alike(runs[-1][0], qtensor):
            runs[-1].append(qtensor)
        else:
            runs.append([qtensor])
    return runs


def _share_alike(one: QTensor, other: QTensor) -> bool:
    """Whether what belongs to a whole tensor is equal in both, so that they may become one."""
    return one.shared.keys() == other.shared.keys() and all(
        np.array_equal(array, other.shared[name]) for name, array in one.shared.items()
    )


def concat_rows(qtensors: Sequence[QTensor]) -> QTensor:
    """The rows of all, one below the other; formats, row sizes and shared arrays are equal."""
    first = qtensors[0]
    if len(qtensors) == 1:
        return first
    parts = {part: np.concatenate([qtensor.parts[part] for qtensor in qtensors]) for part in first.parts}
    num_rows = sum(qtensor.shape[0] for qtensor in qtensors)
    return QTensor(first.format, (num_rows, *first.shape[1:]), parts, first.shared)
