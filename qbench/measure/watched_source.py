"""A source that reports how much of it has been read, so that loading a large model shows a bar."""

from qbench.progress import Progress
from quant.qtensor import QTensor
from quant.source import Source, SourceView


class WatchedSource(SourceView):
    """`source` unchanged; `progress` hears of each tensor read, as tensors done, tensors in all, "loading"."""

    def __init__(self, source: Source, progress: Progress) -> None:
        super().__init__(source)
        self.progress = progress
        self.num_read = 0

    def read(self, name: str) -> QTensor:
        qtensor = super().read(name)
        self.num_read += 1
        self.progress(min(self.num_read, len(self.tensors)), len(self.tensors), "loading")
        return qtensor
