"""`rand:SHAPE`: a real model's shape with weights made when they are read, for speed and memory."""

import hashlib
from collections.abc import Iterator
from functools import cache
from statistics import NormalDist

import numpy as np

from qbench.sources.shape import FORMAT, ShapeSource
from qbench.sources.shapes import SHAPES
from quant.formats import get_format
from quant.qtensor import QTensor
from quant.source import row_ranges

PREFIX = "rand:"
STD = 0.02  # the usual initializer_range of Llama models
LEVELS = 1 << 16  # one normal quantile for each uint16
# Random words made at a time: 128 KiB, and 512 KiB as the 64-bit indices NumPy looks up with; both stay in the L2.
CHUNK_WORDS = 1 << 14


class RandomSource(ShapeSource):
    """Source whose tensors depend on shape and tensor name alone: the same on every machine, in any order.

    raises   InputError for an unknown shape
    """

    def __init__(self, spec: str) -> None:
        super().__init__(spec, PREFIX, SHAPES)

    def read(self, name: str) -> QTensor:
        shape = self.tensors[name].shape
        if len(shape) == 1:  # a norm's weight: ones, or the signal would die within a few layers; a bias: zeros
            value = 0 if name.endswith("bias") else 1
            return get_format(FORMAT).quantize_ref(np.full(shape, value, dtype=np.float32))
        (whole,) = self.row_blocks(name, shape[0])
        return whole

    def has_row_blocks(self, name: str) -> bool:
        return len(self.tensors[name].shape) > 1

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        """num_rows: a multiple of 4, or all rows: a random word makes four weights"""
        shape = self.tensors[name].shape
        seed = int.from_bytes(hashlib.sha256(f"{self.spec}/{name}".encode()).digest()[:8], "little")
        words = np.random.SFC64(seed)  # its raw stream is fixed; NumPy's distributions may change between versions
        for rows in row_ranges(shape, num_rows):
            weights = random_bf16(len(rows) * int(np.prod(shape[1:], dtype=np.int64)), words)
            yield QTensor(FORMAT, (len(rows), *shape[1:]), {"blocks": weights.view(np.uint8).reshape(len(rows), -1)})

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.spec} {sorted(self.config.items())!r} std {STD}".encode()).hexdigest()


def random_bf16(num_weights: int, words: np.random.SFC64) -> np.ndarray:
    """Normal numbers of deviation STD as bf16 bits, by looking 16 random bits up in a table of quantiles.

    words    raw stream, which moves on by a word of 64 bits for every 4 weights
    returns  [num_weights] uint16
    """
    quantiles = _quantiles()
    out = np.empty(num_weights, dtype="<u2")
    for start in range(0, num_weights, 4 * CHUNK_WORDS):
        chunk = out[start : start + 4 * CHUNK_WORDS]
        index = words.random_raw(-(-len(chunk) // 4)).astype("<u8", copy=False).view("<u2")[: len(chunk)]
        np.take(quantiles, index, out=chunk, mode="clip")  # every index is valid; mode "raise" would buffer `out`
    return out


@cache
def _quantiles() -> np.ndarray:
    """[LEVELS] uint16: bf16 bits of the normal distribution's quantiles at the middle of each level."""
    normal = NormalDist(0.0, STD)
    values = [normal.inv_cdf((level + 0.5) / LEVELS) for level in range(LEVELS)]
    return get_format(FORMAT).quantize_ref(np.array(values, dtype=np.float32)).parts["blocks"].reshape(-1).view("<u2")
