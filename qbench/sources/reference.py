"""`ref:NAME`: the models that come with qbench."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from qbench.reference import MODELS, weights_dir
from qbench.reference.outliers import FACTOR, scale_channels
from quant.artifacts.hf_reader import HFSource
from quant.formats import dequantize, get_format
from quant.late import LateModule
from quant.qtensor import QTensor
from quant.source import Source

if TYPE_CHECKING:
    import torch
else:
    torch = LateModule("torch")

PREFIX = "ref:"


def open_reference(spec: str) -> Source:
    """raises InputError for an unknown name, or weights that this installation lacks"""
    name = spec.removeprefix(PREFIX)
    source = HFSource(weights_dir(name), spec)
    return OutlierSource(source) if MODELS[name].outliers else source


class OutlierSource:
    """Source of the same function with outliers in its activations, in the formats that the model has without them.

    The scaled weights of the whole model are made at the first read and kept: the models that this is for are small.
    """

    def __init__(self, source: Source) -> None:
        self.spec, self.config, self.tokenizer = source.spec, source.config, source.tokenizer
        self._source = source
        self.tensors = source.tensors

    def read(self, name: str) -> QTensor:
        return get_format(self.tensors[name].format).quantize_ref(self._scaled[name])

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._source.fingerprint()} outliers {FACTOR}".encode()).hexdigest()

    @cached_property
    def _scaled(self) -> dict[str, np.ndarray]:
        weights = {name: torch.from_numpy(dequantize(self._source.read(name))) for name in self.tensors}
        return {name: weight.numpy() for name, weight in scale_channels(weights).items()}
