"""Linears, norms and tables of a model of any kind, from its tensors."""

from collections.abc import Callable, Sequence

from torch import Tensor

from qbench.runtime.layers.embedding import StoredTable, Table
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.linear import as_tensor
from qbench.runtime.layers.norm import KernelRMSNorm, RMSNorm
from quant.extension import has_cpu_kernels
from quant.formats import dequantize
from quant.qtensor import QTensor


class Builder:
    """Remembers the implementation of each linear and the memory of all.

    read  name -> that tensor; each is asked for once
    """

    def __init__(self, read: Callable[[str], QTensor], impl: str) -> None:
        self.read = read
        self.impl = impl
        self.has_kernels = impl != "reference" and has_cpu_kernels()
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0

    def linears(self, *names: str) -> FusedLinears:
        """Without biases."""
        return self.fused_tensors(names, [self.read(f"{name}.weight") for name in names], [None] * len(names))

    def fused_tensors(
        self, names: Sequence[str], qtensors: Sequence[QTensor], biases: Sequence[Tensor | None]
    ) -> FusedLinears:
        linears = FusedLinears(qtensors, biases, self.impl)
        self.impls |= dict(zip(names, linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears

    def rms_norm(self, name: str, eps: float) -> RMSNorm:
        norm = (KernelRMSNorm if self.has_kernels else RMSNorm)(self.vector(f"{name}.weight"), eps)
        self.weight_bytes += norm.size_bytes
        return norm

    def tied_table(self, name: str, head: str) -> tuple[Table, FusedLinears]:
        """A table that is the head's weight, held once, as the head packs it."""
        linears = self.fused_tensors((head,), [self.read(f"{name}.weight")], [None])
        ((linear, _),) = linears.linears
        return linear, linears

    def stored_table(self, name: str) -> Table:
        table = StoredTable(self.read(f"{name}.weight"))
        self.weight_bytes += table.size_bytes
        return table

    def vector(self, name: str) -> Tensor:
        """Floats that whoever holds them counts."""
        return as_tensor(dequantize(self.read(name)))
