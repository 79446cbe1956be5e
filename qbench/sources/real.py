"""`real:NAME`: a real model, of the same function as the file that `make real` fetched, with weights off its grid.

The weights of the file are points of the grid of its 4-bit blocks, so a format with the same blocks loses nothing. Here
each channel between two linears is scaled: its writer is divided by s, its readers are multiplied by s, which changes
no output but by rounding. The scales are drawn between exp(-SPREAD) and exp(SPREAD); they differ within a block, and
the weights leave the grid. The embedding, which has 8 bits in the files, stays.
"""

import hashlib

import numpy as np

from qbench.real import real_file
from quant.artifacts.gguf_reader import GGUFSource
from quant.formats import dequantize, get_format
from quant.methods.folding import channels, instances
from quant.methods.folding_table import FOLDS
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.source import Source, SourceView, TensorInfo

SPREAD = 0.25  # at 0.1 and above no more weights are near a point of a 4-bit grid than by chance
VECTOR, MATRIX = "f32", "bf16"  # formats of the tensors, as models are published


def open_real(spec: str) -> Source:
    """raises InputError for an unknown name, and for a file that is missing or changed"""
    path = real_file(spec, "model")
    return RescaledSource(GGUFSource(path, spec))


class RescaledSource(SourceView):
    """`source` with scaled channels; all tensors are VECTOR or MATRIX."""

    def __init__(self, source: Source, spread: float = SPREAD, seed: int = 0) -> None:
        super().__init__(source)
        self.name = f"channels scaled by exp({spread}), seed {seed}"
        self.tensors = {name: _info(info.shape) for name, info in source.tensors.items()}
        config = ModelConfig.of(source)
        self._divisors: dict[str, np.ndarray] = {}  # of outputs
        self._factors: dict[str, np.ndarray] = {}  # of input features
        for row in FOLDS:
            for writer, readers in instances(row, source.tensors):
                channel_of = channels(row.through, config, source.tensors[readers[0]].shape[1])  # [K]
                scale = np.ones(source.tensors[writer].shape[0], dtype=np.float32)  # [C]
                read = np.unique(channel_of)
                scale[read] = _scale(f"{seed} {writer}", len(scale), spread)[read]
                self._divisors[writer] = scale
                self._factors |= dict.fromkeys(readers, scale[channel_of])

    def read(self, name: str) -> QTensor:
        weight = dequantize(self.source.read(name)).astype(np.float32)  # [N, K], or [N] of a norm or a bias
        divisor = self._divisors.get(name.removesuffix(".bias") + ".weight" if name.endswith(".bias") else name)
        if divisor is not None:
            weight = weight / (divisor[:, None] if weight.ndim > 1 else divisor)
        if name in self._factors:
            weight = weight * self._factors[name]
        return get_format(self.tensors[name].format).quantize_ref(weight)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.source.fingerprint()} {self.name}".encode()).hexdigest()


def _info(shape: tuple[int, ...]) -> TensorInfo:
    name = VECTOR if len(shape) == 1 else MATRIX
    return TensorInfo(shape, name, int(np.prod(shape)) * (4 if name == VECTOR else 2))


def _scale(seed: str, num_channels: int, spread: float) -> np.ndarray:
    """[num_channels] float32, the same on every machine."""
    words = np.random.SFC64(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little"))
    uniform = (words.random_raw(num_channels) >> np.uint64(40)) / float(1 << 24)  # [0, 1)
    return np.exp(spread * (2 * uniform - 1)).astype(np.float32)
