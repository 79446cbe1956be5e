"""Blocks as libggml makes and reads them: one function a row, with the threads that llama-quantize gives it."""

import ctypes
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from qbench.kernels.benchmark import Absent
from qbench.kernels.peers.ggml import INT, INT64, POINTER, SIZE, libraries

TO_FLOAT = ctypes.CFUNCTYPE(None, POINTER, POINTER, INT64)


class TypeTraits(ctypes.Structure):
    """ggml.h, ggml_type_traits: the fields after it are not needed."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", INT64),
        ("blck_size_interleave", INT64),
        ("type_size", SIZE),
        ("is_quantized", ctypes.c_bool),
        ("to_float", POINTER),
    )


@cache
def base() -> ctypes.CDLL:
    """raises Absent without libggml"""
    library, _ = libraries()
    try:
        library.ggml_quantize_chunk.restype = SIZE
        library.ggml_quantize_chunk.argtypes = [INT, POINTER, POINTER, INT64, INT64, INT64, POINTER]
        library.ggml_quantize_init.argtypes = [INT]
        library.ggml_get_type_traits.restype = ctypes.POINTER(TypeTraits)
        library.ggml_get_type_traits.argtypes = [INT]
    except AttributeError as error:
        raise Absent(f"libggml of llama-cpp-python is not the one that is known: {error}") from error
    return library


class InShares(ABC):
    """Rows in shares, one per thread; ctypes calls let each other run."""

    def __init__(self, num_rows: int, threads: int) -> None:
        ends = [num_rows * (index + 1) // threads for index in range(threads)]
        self.shares = list(zip([0, *ends], ends, strict=False))  # rows from and up to
        self.pool = ThreadPoolExecutor(threads)

    def run(self) -> None:
        list(self.pool.map(self.run_share, self.shares))

    @abstractmethod
    def run_share(self, share: tuple[int, int]) -> None: ...


class GgmlEncoder(InShares):
    """weights [N, K] float32 -> blocks [N K / block size, block bytes] uint8"""

    def __init__(self, gguf_type: int, weights: np.ndarray, threads: int) -> None:
        self.library, self.type, self.weights = base(), gguf_type, weights
        self.library.ggml_quantize_init(gguf_type)
        traits = self.library.ggml_get_type_traits(gguf_type).contents
        self.data = np.zeros((weights.size // traits.blck_size, traits.type_size), np.uint8)
        super().__init__(len(weights), threads)
        self.how = "ggml_quantize_chunk"

    def run_share(self, share: tuple[int, int]) -> None:
        start, end = share
        row_size = self.weights.shape[1]
        source, target = self.weights.ctypes.data, self.data.ctypes.data
        self.library.ggml_quantize_chunk(
            self.type, source, target, start * row_size, end - start, row_size, None
        )  # fmt: skip

    def output(self) -> np.ndarray:
        return self.data


class GgmlDecoder(InShares):
    """blocks [B, block bytes] uint8 -> [B, block size] float32"""

    def __init__(self, gguf_type: int, data: np.ndarray, block_size: int, threads: int) -> None:
        traits = base().ggml_get_type_traits(gguf_type).contents
        self.to_float, self.data = TO_FLOAT(traits.to_float), data
        self.weights = np.zeros((len(data), block_size), np.float32)
        super().__init__(len(data), threads)
        self.how = "to_float"

    def run_share(self, share: tuple[int, int]) -> None:
        start, end = share
        target = self.weights[start:end]
        self.to_float(self.data[start:end].ctypes.data, target.ctypes.data, target.size)

    def output(self) -> np.ndarray:
        return self.weights
