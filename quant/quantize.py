"""A model as a recipe makes it: a Source that quantizes what it reads."""

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.methods import Layer
from quant.qtensor import QTensor
from quant.recipes import Recipe
from quant.source import Source, TensorInfo, TokenizerInfo

# Weights in float32 at a time, 4 MiB: a vocabulary of 128k rows needs no second copy of itself in float32, and the
# allocator gives the same pages again, where larger blocks come fresh from the system and fault page by page.
CHUNK_WEIGHTS = 1 << 20


class QuantizedSource:
    """Source whose tensors have the formats that `recipe` plans for `source`.

    Nothing is kept: each `read` reads from `source`, dequantizes and quantizes. A tensor that already has its
    planned format passes through untouched.
    raises   InputError if the recipe's method needs calibration, or a row fits no format
    """

    def __init__(self, source: Source, recipe: Recipe) -> None:
        self.spec = source.spec
        self.source = source
        self.recipe = recipe
        self._method = recipe.make_method()
        if self._method.needs:
            raise InputError(f"recipe {recipe.name}: method {recipe.method} needs calibration, not a tensor at a time")
        self.plan = recipe.plan(source)
        self.tensors: Mapping[str, TensorInfo] = {
            name: _planned(info, self.plan[name].format) for name, info in source.tensors.items()
        }

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The source's, less what it says of its own quantization: the tensors are no longer those."""
        return {key: value for key, value in self.source.config.items() if key != "quantization_config"}

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        return self.source.tokenizer

    def read(self, name: str) -> QTensor:
        source, wanted = self.source.read(name), self.plan[name].format
        if source.format == wanted:
            return source
        try:
            return convert(source, wanted, lambda weight: self._quantize(name, weight, wanted))
        except InputError as error:
            raise InputError(f"{self.spec}: tensor {name}: {error}") from error

    def _quantize(self, name: str, weight: np.ndarray, wanted: str) -> QTensor:
        return self._method.quantize_layer(Layer({name: weight}, {name: wanted}), {})[name]

    def fingerprint(self) -> str:
        planned = [f"{name} {info.format}" for name, info in self.tensors.items()]
        parts = [self.source.fingerprint(), self.recipe.method, *planned]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def convert(source: QTensor, wanted: str, quantize: Callable[[np.ndarray], QTensor]) -> QTensor:
    """`source` dequantized and quantized again, some rows at a time.

    quantize   [n, K] float32 -> QTensor of format `wanted`; no row may depend on another
    """
    num_rows = source.shape[0]
    rows_per_chunk = max(1, CHUNK_WEIGHTS // math.prod(source.shape[1:]))
    parts: dict[str, np.ndarray] = {}
    for start in range(0, num_rows, rows_per_chunk):
        rows = slice(start, min(start + rows_per_chunk, num_rows))
        chunk = QTensor(
            source.format,
            (rows.stop - start, *source.shape[1:]),
            {part: array[rows] for part, array in source.parts.items()},
            source.shared,
        )
        for part, array in quantize(dequantize(chunk)).parts.items():
            if part not in parts:
                parts[part] = np.empty((num_rows, *array.shape[1:]), dtype=array.dtype)
            parts[part][rows] = array
    return QTensor(wanted, source.shape, parts)


def _planned(info: TensorInfo, fmt: str) -> TensorInfo:
    return TensorInfo(info.shape, fmt, get_format(fmt).size_bytes(info.shape))
