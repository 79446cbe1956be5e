"""A head that a directory keeps although its config says that it is the embedding."""

from collections.abc import Mapping

import numpy as np

from quant.artifacts.file_bytes import read_span
from quant.artifacts.hf_stored import without_prefix
from quant.artifacts.layouts import READ_FORMAT
from quant.formats import dequantize
from quant.models import EMBEDDING, HEAD, ModelConfig, expected_tensors
from quant.qtensor import QTensor
from quant.safetensors.header import StoredTensor

CHUNK_BYTES = 64 << 20


def has_own_head(stored: Mapping[str, StoredTensor], model: ModelConfig) -> bool:
    """Whether the head has another shape or other numbers than the embedding, and is no copy of it."""
    prefix, name = model.architecture.prefix, expected_tensors(model)[EMBEDDING].stored.name
    head = stored.get(HEAD)
    embedding = stored.get(name.removeprefix(prefix) if without_prefix(stored, prefix) else name)
    if head is None or embedding is None:
        return False
    if head.shape != embedding.shape or any(tensor.dtype not in READ_FORMAT for tensor in (head, embedding)):
        return True
    rows = max(1, CHUNK_BYTES * head.shape[0] // max(head.size_bytes, embedding.size_bytes, 1))
    starts = range(0, head.shape[0], rows)
    return any(_differ(head, embedding, start, min(rows, head.shape[0] - start)) for start in starts)


def _differ(head: StoredTensor, embedding: StoredTensor, start: int, count: int) -> bool:
    one, other = (_rows(tensor, start, count) for tensor in (head, embedding))
    if head.dtype == embedding.dtype:
        return not np.array_equal(one, other)
    return not np.array_equal(dequantize(_qtensor(head, one)), dequantize(_qtensor(embedding, other)))


def _rows(tensor: StoredTensor, start: int, count: int) -> np.ndarray:
    """[count, bytes of a row] uint8"""
    of_row = tensor.size_bytes // tensor.shape[0]
    return read_span(tensor.path, tensor.start + start * of_row, count * of_row).reshape(count, of_row)


def _qtensor(tensor: StoredTensor, data: np.ndarray) -> QTensor:
    return QTensor(READ_FORMAT[tensor.dtype], (len(data), *tensor.shape[1:]), {"blocks": data})
