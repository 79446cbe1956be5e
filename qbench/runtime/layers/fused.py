"""Linears that share an input, run as one product."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.layers.linear import Linear, PackedLinear, choose_linear
from qbench.runtime.layers.norm import Norm
from quant.qtensor import QTensor, concat_rows


class FusedLinears:
    """Linears that read the same input: one call of cpu_kernels if it has packed them all, whatever their formats.

    Others are stacked into one product per format (fewer calls, longer reads), with the steps around it in a chain.

    formats  of the weights, in the order given
    group    cpu_kernels' LinearGroup of all weights; None unless it has packed them all
    chained  the same in a chain of layers, if they may be part of one; then `add_ranks` adds products in place that
             several ranks have parts of
    call     x [..., K] float32 -> one y [..., N] float32 for each weight, in the order given
             norm: of x, before it is read; residual [..., N]: added to the only y
    """

    def __init__(self, qtensors: Sequence[QTensor], biases: Sequence[Tensor | None], impl: str = "auto") -> None:
        linears: list[tuple[Linear, list[int]]] = []
        for run in runs_of_equal_format(qtensors):
            impl_of_run = choose_linear(run[0].format, impl)
            # Packed weights share a call as they are.
            for stack in [[qtensor] for qtensor in run] if impl_of_run.is_packed else [run]:
                linears.append((impl_of_run.build(concat_rows(stack)), [qtensor.shape[0] for qtensor in stack]))
        self._hold(linears, [qtensor.format for qtensor in qtensors], biases)

    @classmethod
    def of_packed(cls, linears: Sequence[PackedLinear], biases: Sequence[Tensor | None]) -> Self:
        """The same of weights that were packed before."""
        fused = cls.__new__(cls)
        fused._hold(
            [(linear, [linear.num_rows]) for linear in linears], [each.packed.format for each in linears], biases
        )
        return fused

    def _hold(
        self, linears: list[tuple[Linear, list[int]]], formats: list[str], biases: Sequence[Tensor | None]
    ) -> None:
        self.linears = linears  # a product, and the rows of each weight in it
        self.formats = formats
        self.biases = biases
        self.has_bias = any(bias is not None for bias in biases)
        self.group = self.chained = _group([linear for linear, _ in linears], biases)
        self.add_ranks: Callable[[np.ndarray], None] | None = None

    @property
    def size_bytes(self) -> int:
        biases = sum(bias.nbytes for bias in self.biases if bias is not None)
        return sum(linear.size_bytes for linear, _ in self.linears) + biases

    @property
    def impl_names(self) -> list[str]:
        """The implementation of each weight, in order."""
        return [linear.name for linear, row_counts in self.linears for _ in row_counts]

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        if self.group is not None:
            outputs = self.group.multiply(*kernel_arguments(x, norm, residual))
            return tuple([as_outputs(y, x) for y in outputs])
        outputs = self._products(x if norm is None else norm(x))
        if residual is None:
            return outputs
        (y,) = outputs
        return (y.add_(residual),)

    def _products(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = [y for linear, row_counts in self.linears for y in linear(x).split_with_sizes(row_counts, -1)]
        if not self.has_bias:
            return tuple(outputs)
        return tuple(y if bias is None else y + bias for y, bias in zip(outputs, self.biases, strict=True))


def kernel_arguments(
    x: Tensor, norm: Norm | None, residual: Tensor | None
) -> tuple[np.ndarray, np.ndarray | None, float, np.ndarray | None]:
    """Arguments of a call of a group of cpu_kernels: x, the norm's weight and eps, the residual; [M, K] arrays."""
    rows = as_rows(x)
    added = None if residual is None else rows if residual is x else as_rows(residual)
    if norm is None:
        return rows, None, 0.0, added
    return (as_rows(norm(x)), None, 0.0, added) if norm.array is None else (rows, norm.array, norm.eps, added)


def add_output(output: FusedLinears, x: Tensor, residual: Tensor | None, norm: Norm | None = None) -> Tensor:
    """The end of one half of a layer: output(x), normed if the architecture does so, plus the residual."""
    if norm is None:
        (y,) = output(x, residual=residual)
        return y
    (y,) = output(x)
    return norm(y) if residual is None else norm(y) + residual


def as_outputs(y: np.ndarray, x: Tensor) -> Tensor:
    """y [M, N] as a tensor, its tokens in the shape of x [..., K]"""
    return torch.from_numpy(y if x.ndim == 2 else y.reshape(*x.shape[:-1], y.shape[1]))


def as_rows(x: Tensor) -> np.ndarray:
    """x [..., K] as [M, K]"""
    array = x.numpy()
    return array if array.ndim == 2 else array.reshape(-1, array.shape[-1])


def _group(linears: Sequence[Linear], biases: Sequence[Tensor | None]) -> Any:
    """cpu_kernels' LinearGroup of the linears, or None unless it has packed them all."""
    packed = [linear.packed for linear in linears if isinstance(linear, PackedLinear)]
    if len(packed) < len(linears):
        return None
    kernels = importlib.import_module("cpu_kernels")
    arrays = [None if bias is None else bias.numpy() for bias in biases]
    return kernels.LinearGroup(packed, arrays)


def runs_of_equal_format(qtensors: Sequence[QTensor]) -> list[list[QTensor]]:
    """Neighbours that may become one weight."""
    runs: list[list[QTensor]] = []
    for qtensor in qtensors:
        if runs and runs[-1][0].format == qtensor.format and _share_alike(runs[-1][0], qtensor):
            runs[-1].append(qtensor)
        else:
            runs.append([qtensor])
    return runs


def _share_alike(one: QTensor, other: QTensor) -> bool:
    """Whether the parts that belong to a whole tensor are equal in both, so that they may become one."""
    return one.shared.keys() == other.shared.keys() and all(
        np.array_equal(array, other.shared[name]) for name, array in one.shared.items()
    )
