"""Format: how a weight becomes bytes, and back. One class a format; sizes and checks live here."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.qtensor import QTensor


class Format(ABC):
    """A storage format with its slow, obvious NumPy codec.

    The `_ref` methods are the truth that every kernel is compared with.
    """

    name: ClassVar[str]
    gguf_type: ClassVar[int | None] = None  # ggml_type number where GGUF has the format

    @property
    @abstractmethod
    def bits_per_weight(self) -> float:
        """All stored bits, scales included, over weights (exact for rows of whole blocks)."""

    @abstractmethod
    def check_row(self, row_size: int) -> None:
        """raises InputError if the format cannot hold rows of this many weights."""

    @abstractmethod
    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this logical shape."""

    @abstractmethod
    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        """weight [..., K] float32 -> QTensor of the same logical shape."""

    @abstractmethod
    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        """QTensor -> float32 of its logical shape."""


class BlockFormat(Format):
    """A GGUF-style format: each row is a run of independent blocks in one part named "blocks".

    parts["blocks"] is uint8 [..., K // block_size * block_bytes]. A subclass gives the two
    constants and the maths on whole blocks.
    """

    block_size: ClassVar[int]  # weights a block
    block_bytes: ClassVar[int]  # bytes a block

    @abstractmethod
    def quantize_blocks(self, blocks: np.ndarray) -> np.ndarray:
        """blocks [B, block_size] float32 -> uint8 [B, block_bytes]"""

    @abstractmethod
    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> float32 [B, block_size]"""

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block_size

    def check_row(self, row_size: int) -> None:
        if row_size <= 0 or row_size % self.block_size:
            raise InputError(f"{self.name} needs rows of a multiple of {self.block_size} weights, got {row_size}")

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        self.check_row(shape[-1])
        return int(np.prod(shape, dtype=np.int64)) // self.block_size * self.block_bytes

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_row(weight.shape[-1])
        blocks = np.ascontiguousarray(weight, dtype=np.float32).reshape(-1, self.block_size)
        data = self.quantize_blocks(blocks)
        assert data.dtype == np.uint8 and data.shape == (len(blocks), self.block_bytes), self.name
        row_bytes = weight.shape[-1] // self.block_size * self.block_bytes
        return QTensor(self.name, tuple(weight.shape), {"blocks": data.reshape(*weight.shape[:-1], row_bytes)})

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        data = qtensor.parts["blocks"]
        if data.nbytes != self.size_bytes(qtensor.shape):
            raise InputError(
                f"{self.name} of shape {qtensor.shape} takes {self.size_bytes(qtensor.shape)} bytes, got {data.nbytes}"
            )
        blocks = self.dequantize_blocks(data.reshape(-1, self.block_bytes))
        assert blocks.dtype == np.float32 and blocks.shape[-1] == self.block_size, self.name
        return blocks.reshape(qtensor.shape)
