"""A model in another basis of its residual stream: the same function, as float32 weights."""

import hashlib
import math
from collections.abc import Iterable

import numpy as np

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.models import EMBEDDING, HEAD, ModelConfig, expected_tensors, split_name
from quant.models.online import CONFIG_KEY, online_rotations
from quant.qtensor import QTensor
from quant.rotation.basis import Basis, LearnedBases
from quant.rotation.places import Channels, Place, places_of
from quant.source import Source, SourceView, TensorInfo
from quant.turn import turn_of

STORED = "f32"
CHUNK_WEIGHTS = 1 << 20  # in float64 at a time


class RotatedSource(SourceView):
    """Source whose linears took the factors of the norms before them and a rotation of their inputs and outputs.

    Exact in real arithmetic. Without `online`, nothing is done when the model runs, so others load it as any model of
    its kind. A tied head becomes a tensor of its own, since it takes the factors of the final norm and the embedding
    does not.

    online   places of `quant.models.online` that the runtime rotates; their weights are given in the rotated basis
    learned  bases in place of the fixed ones
    source   Ashkboos et al. 2024, arXiv:2404.00456 (QuaRot), stages 1a to 1d; Liu et al. 2024, arXiv:2405.16406
             (SpinQuant), figure 1: R1 and R2 in weights, R3 and R4 online
    raises   InputError for a model that a rotation would change, or that has online rotations already
    """

    def __init__(self, source: Source, online: Iterable[str] = (), learned: LearnedBases | None = None) -> None:
        super().__init__(source)
        if online_rotations(source.config):
            raise InputError(f"{source.spec} is rotated already; quantize the model that it was made from")
        self.learned = learned
        self.online = tuple(sorted(online))
        named = {CONFIG_KEY: list(self.online)} if self.online else {}
        self.config = {**source.config, "tie_word_embeddings": False, **named}
        expected = expected_tensors(ModelConfig.of(self))
        self._places = places_of(ModelConfig.of(self), expected, source.spec)
        self.tensors = {
            name: source.tensors[name] if self._place(name) is None else _float_info(tensor.shape)
            for name, tensor in expected.items()
        }

    def read(self, name: str) -> QTensor:
        place = self._place(name)
        if place is None:
            return self.source.read(name)
        if place.is_norm:
            return get_format(STORED).quantize_ref(np.ones(self.tensors[name].shape, dtype=np.float32))
        is_tied = name == HEAD and HEAD not in self.source.tensors
        weight = dequantize(self.source.read(EMBEDDING if is_tied else name))
        rows = weight[None] if weight.ndim == 1 else weight  # a bias is the outputs of a linear without inputs
        if place.columns is not None:
            rows = turned(rows, place.columns.blocks, self._basis(name, place.columns), self._factors(name, place))
        if place.rows is not None:
            rows = rows if weight.ndim == 1 else rows.T
            rows = turned(rows, place.rows.blocks, self._basis(name, place.rows))
            rows = rows if weight.ndim == 1 else np.ascontiguousarray(rows.T)
        return get_format(STORED).quantize_ref(rows.reshape(weight.shape))

    def fingerprint(self) -> str:
        words = [self.source.fingerprint(), "rotated", *self.online]
        if self.learned is not None:
            words.append(self.learned.fingerprint())
        return hashlib.sha256(" ".join(words).encode()).hexdigest()

    def _place(self, name: str) -> Place | None:
        return self._places.get(split_name(name)[0])

    def _basis(self, name: str, channels: Channels) -> Basis:
        if self.learned is None or channels.basis is None:
            return turn_of(channels.blocks.shape[1])
        return self.learned.of(channels.basis, split_name(name)[1])

    def _factors(self, name: str, place: Place) -> np.ndarray | None:
        """[K] float32, those of the norm that the linear reads"""
        if place.norm is None:
            return None
        return dequantize(self.source.read(place.norm.format(split_name(name)[1])))


def turned(weight: np.ndarray, columns: np.ndarray, basis: Basis, factors: np.ndarray | None = None) -> np.ndarray:
    """weight [N, K] -> float32 with each block of `columns` [blocks, size] turned, after a product with factors [K]"""
    made = np.empty(weight.shape, dtype=np.float32)
    step = max(1, CHUNK_WEIGHTS // weight.shape[1])
    for start in range(0, len(weight), step):
        some = weight[start : start + step].astype(np.float64)  # [n, K]
        if factors is not None:
            some *= factors
        some[:, columns] = basis.apply(some[:, columns])  # [n, blocks, size]
        made[start : start + step] = some
    return made


def _float_info(shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(shape, STORED, 4 * math.prod(shape))
