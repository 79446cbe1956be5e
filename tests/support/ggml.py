"""libggml through ctypes, from llama-cpp-python: the oracle for the bytes and errors of GGUF formats."""

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

_spec = importlib.util.find_spec("llama_cpp")
_found = sorted(Path(_spec.origin).parent.glob("lib/libggml-base.so")) if _spec and _spec.origin else []

needs_ggml = pytest.mark.skipif(not _found, reason="llama-cpp-python (libggml) is not installed")


class _Traits(ctypes.Structure):
    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
        ("from_float", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_found[0]))
    library.ggml_row_size.restype = ctypes.c_size_t
    library.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,  # type
        ctypes.c_void_p,  # source floats
        ctypes.c_void_p,  # destination
        ctypes.c_int64,  # first weight
        ctypes.c_int64,  # rows
        ctypes.c_int64,  # weights per row
        ctypes.c_void_p,  # importance matrix
    ]
    library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
    return library


def ggml_dequantize(data: np.ndarray, gguf_type: int, row_size: int) -> np.ndarray:
    """data [N, row bytes] uint8 -> [N, row_size] float32 of the type's to_float"""
    values = np.empty((len(data), row_size), dtype=np.float32)
    to_float = _library().ggml_get_type_traits(gguf_type).contents.to_float
    to_float(np.ascontiguousarray(data).ctypes.data, values.ctypes.data, values.size)
    return values


def ggml_quantize(weight: np.ndarray, gguf_type: int, importance: np.ndarray | None = None) -> np.ndarray:
    """weight [N, K] float32, importance matrix [K] float32 or None -> [N, row bytes] uint8 of ggml_quantize_chunk"""
    weight = np.ascontiguousarray(weight, dtype=np.float32)
    num_rows, row_size = weight.shape
    data = np.empty((num_rows, _library().ggml_row_size(gguf_type, row_size)), dtype=np.uint8)
    imatrix = None
    if importance is not None:
        importance = np.ascontiguousarray(importance, dtype=np.float32)
        assert importance.shape == (row_size,), importance.shape
        imatrix = importance.ctypes.data
    written = _library().ggml_quantize_chunk(
        gguf_type, weight.ctypes.data, data.ctypes.data, 0, num_rows, row_size, imatrix
    )
    assert written == data.nbytes
    return data
