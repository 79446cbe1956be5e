"""A model source made of arrays of any format and shape."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.formats import get_format
from quant.qtensor import QTensor
from quant.source import TensorInfo, TokenizerInfo


class ArraySource:
    """`quant.source.Source` over QTensors; float arrays are stored in `formats[name]`, or "f32"."""

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, np.ndarray | QTensor],
        formats: Mapping[str, str] | None = None,
        tokenizer: TokenizerInfo | None = None,
    ) -> None:
        formats = formats or {}
        self.spec = "arrays"
        self.config = dict(config)
        self.tokenizer = tokenizer
        self._qtensors = {
            name: weight if isinstance(weight, QTensor) else _stored(weight, formats.get(name, "f32"))
            for name, weight in weights.items()
        }

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo.of(q) for name, q in self._qtensors.items()}

    def read(self, name: str) -> QTensor:
        return self._qtensors[name]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name, qtensor in self._qtensors.items():
            digest.update(name.encode())
            for part in qtensor.parts.values():
                digest.update(np.ascontiguousarray(part))
        return digest.hexdigest()


def _stored(weight: np.ndarray, format_name: str) -> QTensor:
    return get_format(format_name).quantize_ref(np.ascontiguousarray(weight, dtype=np.float32))
