"""A source that tells how much of it has been read, so that loading a large model shows a bar."""

from collections.abc import Mapping
from typing import Any

from qbench.harness.quality import Progress
from quant.qtensor import QTensor
from quant.source import Source, TensorInfo, TokenizerInfo


class WatchedSource:
    """`source` unchanged; `progress` hears of each tensor read, as tensors done, tensors in all, "loading"."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self.source = source
        self.progress = progress
        self.num_read = 0

    @property
    def spec(self) -> str:
        return self.source.spec

    @property
    def config(self) -> Mapping[str, Any]:
        return self.source.config

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.source.tensors

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        return self.source.tokenizer

    def read(self, name: str) -> QTensor:
        qtensor = self.source.read(name)
        self.num_read += 1
        self.progress(min(self.num_read, len(self.tensors)), len(self.tensors), "loading")
        return qtensor

    def fingerprint(self) -> str:
        return self.source.fingerprint()
