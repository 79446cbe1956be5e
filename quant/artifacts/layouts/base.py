"""Layout: how quantized linears are stored in a Hugging Face directory, and described in its config.json."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from quant.artifacts.file_bytes import read_span
from quant.errors import InputError
from quant.formats import Format, get_format
from quant.qtensor import QTensor
from quant.safetensors.header import StoredTensor
from quant.source import SharedInfo, TensorInfo

FORMAT_OF_DTYPE = {"F32": "f32", "F16": "f16", "BF16": "bf16"}  # of tensors that are no linear of a layout
READ_FORMAT = FORMAT_OF_DTYPE | {"F64": "f64"}  # of those that are read
NEXT_STEP = "for others take the original model, in floats, and quantize it here, or a GGUF file of it"
NUMPY_DTYPE = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "F8_E4M3": "u1"}


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a linear: its name after the module's, and its entry in the header.

    dtype   safetensors dtype that is written; `read_too` are read as well
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    read_too: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredModule:
    """The tensors of a directory under one module's name, e.g. model.layers.0.mlp.up_proj, by part name."""

    name: str
    folder: Path
    parts: Mapping[str, StoredTensor]

    def read(self, part: str) -> np.ndarray:
        """The part's array; bfloat16, which NumPy lacks, as float32."""
        stored = self.parts[part]
        data = read_span(stored.path, stored.start, stored.size_bytes)
        if stored.dtype == "BF16":
            return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(stored.shape)
        return data.view(NUMPY_DTYPE[stored.dtype]).reshape(stored.shape)

    def check_matrix(self, fmt: Format, shape: tuple[int, ...]) -> None:
        """raises InputError unless the model's config gives this module a matrix that the format can hold"""
        if len(shape) != 2 or not fmt.holds_row(shape[1]):
            raise InputError(f"{self.folder}: {self.name} is {fmt.name} in shape {list(shape)}, which it cannot hold")

    def check(self, wanted: Iterable[Part]) -> None:
        """raises InputError, naming the file, for a part that is missing or is not as wanted"""
        for part in wanted:
            stored = self.parts.get(part.name)
            if stored is None:
                raise InputError(f"{self.folder}: tensor '{self.name}.{part.name}' is missing; download it again")
            dtypes = (part.dtype, *part.read_too)
            if stored.shape != part.shape or stored.dtype not in dtypes:
                raise InputError(
                    f"{stored.path}: tensor '{self.name}.{part.name}' is {stored.dtype} {list(stored.shape)}, "
                    f"expected {' or '.join(dtypes)} {list(part.shape)}"
                )


class Layout(ABC):
    """The tensors of one `quant_method`. An instance knows the formats of one model, from either side.

    quant_method   of config.json's quantization_config, and a recipe's packing
    formats        of the linears that it holds
    """

    quant_method: ClassVar[str]
    formats: ClassVar[tuple[type[Format], ...]]

    @classmethod
    def holds(cls, fmt: Format) -> bool:
        """Whether linears of this format have a place here."""
        return isinstance(fmt, cls.formats)

    @classmethod
    @abstractmethod
    def of_tensors(cls, linears: Mapping[str, TensorInfo]) -> "Layout":
        """The layout that writes these linears; canonical name -> info, those in float formats included.

        raises   InputError, naming the tensor, for a tensor that has no place here
        """

    @classmethod
    @abstractmethod
    def of_config(cls, config: Mapping[str, Any], where: str) -> "Layout":
        """The layout that reads the linears of this quantization_config.

        where    beginning of errors: the file
        raises   InputError for a scheme that is not read here
        """

    @abstractmethod
    def config(self) -> Mapping[str, object]:
        """The quantization_config of the tensors it was made of, ready for JSON."""

    @abstractmethod
    def parts(self, info: TensorInfo) -> tuple[Part, ...]:
        """The tensors that a linear of this format becomes."""

    @abstractmethod
    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]:
        """Part name -> array, as `parts` says."""

    @abstractmethod
    def info(self, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo | None:
        """Info of the module's tensor; None if its parts are no quantized linear of this layout.

        raises   InputError for parts that are missing, of another shape, or of no format of the config
        """

    def claims(self, module: StoredModule, info: TensorInfo) -> set[str]:
        """Which of a quantized module's parts are the layout's, those that say nothing included."""
        return {part.name for part in self.parts(info)}

    @abstractmethod
    def unpack(self, module: StoredModule, info: TensorInfo) -> QTensor:
        """The linear as its format stores it. raises InputError for values that the format cannot hold."""


def module_of(name: str) -> str:
    """model.layers.0.mlp.up_proj.weight -> model.layers.0.mlp.up_proj"""
    return name.removesuffix(".weight")


def tensor_info(fmt: Format, shape: tuple[int, ...], shared: tuple[SharedInfo, ...] = ()) -> TensorInfo:
    """The info of a linear of this format with these shared arrays."""
    shared_bytes = sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in shared)
    return TensorInfo(shape, fmt.name, fmt.size_bytes(shape) + shared_bytes, shared)


def check_holds(layout: type[Layout], linears: Mapping[str, TensorInfo]) -> None:
    """raises InputError, naming the tensor, for a format that is neither the layout's nor one of plain floats"""
    for name, info in linears.items():
        if info.format not in FORMAT_OF_DTYPE.values() and not layout.holds(get_format(info.format)):
            raise InputError(f"the {layout.quant_method} layout has no place for {info.format} ({name})")
