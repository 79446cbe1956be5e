"""A source that reports how much of it has been read, so that loading a large model shows a bar."""

from collections.abc import Iterator

from qbench.progress import Progress
from quant.qtensor import QTensor
from quant.source import SameWeights, Source


class WatchedSource(SameWeights):
    """`source` unchanged; `progress` hears of each tensor read, as tensors done, tensors in all, "loading"."""

    def __init__(self, source: Source, progress: Progress) -> None:
        super().__init__(source)
        self.progress = progress
        self.num_read = 0

    def read(self, name: str) -> QTensor:
        qtensor = super().read(name)
        self._count()
        return qtensor

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        yield from super().row_blocks(name, num_rows)
        self._count()

    def _count(self) -> None:
        self.num_read += 1
        self.progress(min(self.num_read, len(self.tensors)), len(self.tensors), "loading")
