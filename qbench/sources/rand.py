"""`rand:SHAPE`: a real model's shape with weights made when they are read, for speed and memory."""

import hashlib
from functools import cache
from statistics import NormalDist

import numpy as np

from qbench.sources.shape import FORMAT, ShapeSource
from qbench.sources.shapes import SHAPES
from quant.formats import get_format
from quant.qtensor import QTensor

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
        seed = int.from_bytes(hashlib.sha256(f"{self.spec}/{name}".encode()).digest()[:8], "little")
        weights = random_bf16(int(np.prod(shape, dtype=np.int64)), seed)
        return QTensor(FORMAT, shape, {"blocks": weights.view(np.uint8).reshape(shape[0], -1)})

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.spec} {sorted(self.config.items())!r} std {STD}".encode()).hexdigest()


def random_bf16(num_weights: int, seed: int) -> np.ndarray:
    """Normal numbers of deviation STD as bf16 bits, by looking 16 random bits up in a table of quantiles.

    returns  [num_weights] uint16
    """
    quantiles = _quantiles()
    words = np.random.SFC64(seed)  # its raw stream is fixed; NumPy's distributions may change between versions
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
