"""`shape:NAME`: a model's config and tensor table alone, for decisions before any weight is read."""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from qbench.sources.large_shapes import LARGE_SHAPES
from qbench.sources.shapes import SHAPES
from quant.errors import InputError
from quant.formats import get_format
from quant.models import ModelConfig, expected_tensors
from quant.qtensor import QTensor
from quant.source import TensorInfo

PREFIX = "shape:"
FORMAT = "bf16"


class ShapeSource:
    """Source whose tensors cannot be read: all are bf16, as published.

    shapes   configs by name
    raises   InputError for an unknown name
    """

    tokenizer = None

    def __init__(self, spec: str, prefix: str = PREFIX, shapes: Mapping[str, Any] = SHAPES | LARGE_SHAPES) -> None:
        shape = spec.removeprefix(prefix)
        if shape not in shapes:
            kind = "random model" if prefix != PREFIX else "shape"
            raise InputError(f"{kind} {shape!r} is unknown; known: {', '.join(shapes)}")
        self.spec = spec
        self.config = shapes[shape]
        self.tensors = {name: info_of(want.shape) for name, want in expected_tensors(ModelConfig.of(self)).items()}

    def read(self, name: str) -> QTensor:
        raise InputError(f"{self.spec} has no weights, only sizes: it is for `qbench plan`; rand:SHAPE has random ones")

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.spec} {sorted(self.config.items())!r}".encode()).hexdigest()


@cache
def info_of(shape: tuple[int, ...]) -> TensorInfo:
    """Shared by all tensors of a shape, of which a model of many experts has tens of thousands."""
    return TensorInfo(shape, FORMAT, get_format(FORMAT).size_bytes(shape))
