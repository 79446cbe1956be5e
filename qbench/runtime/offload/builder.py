"""Layers with packed weights in a region, and rows of an embedding that stays in the file."""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.embedding import StoredTable
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.linear import PackedLinear
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.layers.norm import Norm
from qbench.runtime.offload.experts import ExpertStore, StreamedExperts
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.stream_file import StreamFile
from qbench.runtime.offload.units import PlacedLinear, Unit
from quant.models import ModelConfig, split_name
from quant.present import present
from quant.qtensor import QTensor


class StreamedBuilder(BlockBuilder):
    """Builds blocks over units. Weights outside the units are read and held as `BlockBuilder` does it.

    read   name -> that tensor of the source
    store  of the experts, which are built over it; None: a model without experts
    """

    store: ExpertStore | None = None

    def __init__(
        self, config: ModelConfig, read: Callable[[str], QTensor], impl: str, units: Sequence[Unit], file: StreamFile,
        region: Region,
    ) -> None:  # fmt: skip
        super().__init__(config, read, impl)
        self._placed = {linear.name: (unit.name, linear) for unit in units for linear in unit.linears}
        self._file, self._region = file, region

    def linears(self, *names: str) -> FusedLinears:
        placed = [self._placed.get(f"{name}.weight") for name in names]
        if None in placed:
            return super().linears(*names)
        biases = [self.vector(f"{name}.bias") if self._has(f"{name}.bias") else None for name in names]
        made = [self._linear(*place) for place in placed if place is not None]
        linears = FusedLinears.of_packed(made, biases)
        self.impls |= dict(zip(names, linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears

    def experts(self, prefix: str) -> ExpertFeedForward:
        made, layer = super().experts(prefix), split_name(f"{prefix}.")[1]
        return made if self.store is None else StreamedExperts(made, present(layer), self.store)

    def _linear(self, unit: str, placed: PlacedLinear) -> PackedLinear:
        memory = self._region.view(unit)[placed.start : placed.start + placed.size_bytes]
        shared = self._file.shared.get(placed.name, {})
        return PackedLinear.over(placed.format, placed.shape, memory, shared, exact=self.impl == "exact")


class FileTable:
    """Rows of the embedding, read from the file when they are asked for; through the page cache, which may give way."""

    def __init__(self, file: StreamFile) -> None:
        self._format, self._shape = file.embedding
        self._parts = file.rows
        self._shared: Mapping[str, np.ndarray] = file.shared.get("model.embed_tokens.weight", {})
        self._fd = os.open(file.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd)
        self.size_bytes = 0

    def rows(self, index: np.ndarray) -> Tensor:
        different, place = np.unique(index, return_inverse=True)
        parts = {}
        for name, part in self._parts.items():
            dtype, row_shape = np.dtype(part.dtype), part.shape[1:]
            row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
            read = [os.pread(self._fd, row_bytes, part.start + int(row) * row_bytes) for row in different]
            parts[name] = np.frombuffer(b"".join(read), dtype=dtype).reshape(len(different), *row_shape).copy()
        some = QTensor(self._format, (len(different), *self._shape[1:]), parts, dict(self._shared))
        return StoredTable(some).rows(np.arange(len(different)))[torch.from_numpy(place.reshape(-1))]


class StreamedHead(FusedLinears):
    """The head's linears, brought before each product."""

    def __init__(self, linears: FusedLinears, before: Callable[[], None]) -> None:
        self._hold(linears.linears, linears.formats, linears.biases)
        self.before = before

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        self.before()
        return super().__call__(x, norm, residual)
