"""Format: how a weight becomes bytes, and back. Each format is one class; sizes and checks are here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, ClassVar

import numpy as np

from quant.errors import InputError
from quant.extension import import_kernels
from quant.formats.codes import Codes
from quant.formats.importance import importance_blocks
from quant.qtensor import QTensor

# blocks [B, block_bytes] uint8 -> [B, block_size] float32
Decode = Callable[[np.ndarray], np.ndarray]


def find_decoder(name: str) -> Decode | None:
    """The kernel that decodes this format, None if this installation has no such kernel: then the NumPy codec runs."""
    kernels = import_kernels("cpu_kernels.decode")
    if kernels is None or name not in kernels.DECODED_FORMATS:
        return None
    return lambda blocks: kernels.decode(name, blocks)


# (blocks [B, block_size] float32, importance [P, block_size] float32 | None, effort) -> uint8 [B, block_bytes]
Encode = Callable[[np.ndarray, np.ndarray | None, str], np.ndarray]


def find_encoder(name: str) -> Encode | None:
    """The kernel that encodes this format, None if this installation has no such kernel: then the NumPy codec runs."""
    kernels = import_kernels("cpu_kernels.encode")
    if kernels is None or name not in kernels.ENCODED_FORMATS:
        return None
    return lambda blocks, importance, effort: kernels.encode(name, blocks, importance, effort)


EFFORTS = ("fast", "best")  # how long a format's search may take; one that searches nothing has the same for both


class Format(ABC):
    """A storage format with its slow, obvious NumPy codec.

    The `_ref` methods are the truth that every kernel is compared with; `quantize` and `dequantize` are the fastest
    ways to the same bytes and values that this machine has.
    """

    name: str
    block_size: int  # weights that share a scale; a row is whole blocks (1: any row will do)
    gguf_type: ClassVar[int | None] = None  # ggml_type number if GGUF has the format
    fallback: ClassVar[str | None] = None  # format that a GGUF file gives rows that this one cannot hold
    rows_stand_alone: bool = True  # a row's bytes depend on that row alone, so a matrix may be quantized in pieces
    writes: ClassVar[bool] = True  # False: there is no encoder, the format only occurs in files of other programs
    largest_weight: float | np.float32 = np.inf  # magnitude at which float16 scales end; codecs saturate beyond

    @property
    @abstractmethod
    def bits_per_weight(self) -> float:
        """All stored bits, scales included, over weights (exact for rows of whole blocks)."""

    def holds_row(self, row_size: int) -> bool:
        return row_size > 0 and row_size % self.block_size == 0

    def check_row(self, row_size: int) -> None:
        """raises InputError if the format cannot hold rows of this many weights."""
        if not self.holds_row(row_size):
            raise InputError(f"{self.name} needs rows of a multiple of {self.block_size} weights, got {row_size}")

    def check_range(self, weight: np.ndarray) -> None:
        """raises InputError for weights that the codec would saturate: of such a model nothing is left."""
        if self.largest_weight == np.inf:
            return
        largest = max(weight.max(initial=0), -weight.min(initial=0))
        if self.largest_weight < largest < np.inf:  # the codec handles inf and NaN
            limit = f"{self.name} holds magnitudes up to {self.largest_weight:.0f}"
            raise InputError(f"{limit}, got {largest:.6g}; give this tensor bf16 or f32 in a recipe's rules")

    @abstractmethod
    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this logical shape."""

    @abstractmethod
    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        """weight [..., K] float32 -> QTensor of the same logical shape."""

    @abstractmethod
    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        """QTensor -> float32 of its logical shape."""

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        """weight [..., K] float32 -> QTensor of the same logical shape, bit for bit that of `quantize_ref`.

        importance   [K] float32 >= 0: how much an error in each input feature costs, as a factor of its square
                     (the mean of the squared inputs, as in llama.cpp's imatrix); None: all the same
        effort       "fast", or "best" for a longer search; formats that search nothing look at neither
        """
        return self.quantize_ref(weight)

    def dequantize(self, qtensor: QTensor) -> np.ndarray:
        """QTensor -> float32 of its logical shape, bit for bit that of `dequantize_ref`."""
        return self.dequantize_ref(qtensor)

    def weight_codes(self, qtensor: QTensor) -> Codes | None:
        """The codes of a matrix; None for formats of plain floats."""
        return None

    @abstractmethod
    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        """The input features `columns` of a matrix, codes and scales untouched; both ends are whole blocks."""


# Weights converted at a time, so that peak memory does not grow with the tensor. 256 KiB of float32: fewer and
# NumPy's cost a call shows (Q4_K at a third of the speed with 8 Ki weights), more and nothing is gained.
CHUNK_WEIGHTS = 1 << 16


def rows_of(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """(leading axes, row size) of a logical shape; a norm's [N] is N rows of one weight."""
    return (shape[:-1], shape[-1]) if len(shape) > 1 else (shape, 1)


class BlockFormat(Format):
    """A GGUF-style format: each row is a run of independent blocks in one part named "blocks".

    parts["blocks"] is uint8 [..., K // block_size * block_bytes], and [N, block_bytes] for a 1-D tensor.
    A subclass gives block_size, block_bytes and the maths on whole blocks. A subclass with a name is a format: being
    defined in this package registers it.
    """

    registered: ClassVar[dict[str, type["BlockFormat"]]] = {}  # name -> class
    gguf_file_type: ClassVar[int]  # general.file_type (llama_ftype) of a file whose weights are mostly of this format
    block_bytes: ClassVar[int]  # bytes per block
    finite_only: ClassVar[bool] = True  # NaN and inf have no code; False if the format keeps them

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            BlockFormat.registered[cls.name] = cls

    @abstractmethod
    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        """blocks [B, block_size] float32, importance of the same shape, in (0, 1] -> uint8 [B, block_bytes]"""

    @abstractmethod
    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> float32 [B, block_size]"""

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block_size

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        self.check_row(rows_of(shape)[1])
        return prod(shape) // self.block_size * self.block_bytes

    def quantize_ref(
        self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> QTensor:
        blocks, importance = self._checked(weight, importance, effort)
        data = np.empty((len(blocks), self.block_bytes), dtype=np.uint8)
        for chunk in self._chunks(len(blocks)):
            block = np.ascontiguousarray(blocks[chunk], dtype=np.float32)
            self._check_finite(block)
            of_block = None
            if importance is not None:
                of_block = importance[np.arange(chunk.start, chunk.start + len(block)) % len(importance)]
            data[chunk] = self.quantize_blocks(block, of_block, effort)
        return self._qtensor(weight.shape, data)

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        encode = find_encoder(self.name)
        if encode is None:
            return self.quantize_ref(weight, importance=importance, effort=effort)
        blocks, importance = self._checked(weight, importance, effort)
        blocks = np.ascontiguousarray(blocks, dtype=np.float32)
        try:
            data = encode(blocks, importance, effort)
        except ValueError:
            self._check_finite(blocks)
            raise
        return self._qtensor(weight.shape, data)

    def encode_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        """`quantize_blocks` by the fastest way that this machine has."""
        encode = find_encoder(self.name)
        if encode is None:
            return self.quantize_blocks(blocks, importance, effort)
        return encode(blocks, importance, effort)

    def dequantize(self, qtensor: QTensor) -> np.ndarray:
        decode = find_decoder(self.name)
        if decode is None:
            return self.dequantize_ref(qtensor)
        return decode(np.ascontiguousarray(self._blocks_of(qtensor))).reshape(qtensor.shape)

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        data = self._blocks_of(qtensor)
        blocks = np.empty((len(data), self.block_size), dtype=np.float32)
        for chunk in self._chunks(len(data)):
            blocks[chunk] = self.dequantize_blocks(np.ascontiguousarray(data[chunk]))
        return blocks.reshape(qtensor.shape)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        blocks = qtensor.parts["blocks"].reshape(qtensor.shape[0], -1, self.block_bytes)  # [N, K / block_size, bytes]
        some = blocks[:, columns.start // self.block_size : columns.stop // self.block_size]
        shape = (qtensor.shape[0], columns.stop - columns.start)
        return QTensor(self.name, shape, {"blocks": np.ascontiguousarray(some).reshape(shape[0], -1)})

    def _blocks_of(self, qtensor: QTensor) -> np.ndarray:
        """[B, block_bytes] uint8"""
        data = qtensor.parts["blocks"]
        if data.nbytes != self.size_bytes(qtensor.shape):
            raise InputError(
                f"{self.name} of shape {qtensor.shape} takes {self.size_bytes(qtensor.shape)} bytes, got {data.nbytes}"
            )
        return data.reshape(-1, self.block_bytes)

    def _chunks(self, num_blocks: int) -> Iterator[slice]:
        step = CHUNK_WEIGHTS // self.block_size
        return (slice(start, start + step) for start in range(0, num_blocks, step))

    def _checked(
        self, weight: np.ndarray, importance: np.ndarray | None, effort: str
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(blocks [B, block_size], importance [K // block_size, block_size] or None) of the user's arrays."""
        if effort not in EFFORTS:
            raise ValueError(f"effort: got {effort!r}, expected one of {', '.join(EFFORTS)}")
        row_size = rows_of(weight.shape)[1]
        self.check_row(row_size)
        if importance is not None:
            importance = importance_blocks(importance, row_size, self.block_size)
        return weight.reshape(-1, self.block_size), importance

    def _check_finite(self, blocks: np.ndarray) -> None:
        if self.finite_only and not np.isfinite(blocks).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")

    def _qtensor(self, shape: tuple[int, ...], data: np.ndarray) -> QTensor:
        rows, row_size = rows_of(shape)
        row_bytes = row_size // self.block_size * self.block_bytes
        return QTensor(self.name, tuple(shape), {"blocks": data.reshape(*rows, row_bytes)})


class ReadOnlyFormat(BlockFormat):
    """A block format without an encoder. Recipes refuse it."""

    writes = False

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        raise InputError(f"{self.name} is read but not written here; choose another format")
