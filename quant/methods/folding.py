"""Folding per-channel scales into the tensors before and after a decoder layer's activations."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.methods.base import Layer
from quant.methods.folding_table import FOLDS, FoldRow
from quant.models import ModelConfig, expected_tensors, split_name
from quant.present import present
from quant.qtensor import QTensor

FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Fold:
    """A row of the table in one layer of one model.

    source      canonical name of the norm or linear whose outputs are divided
    readers     canonical names of the linears that read them
    channel_of  [K] int64: which output of `source` the readers' input feature k is
    """

    source: str
    readers: tuple[str, ...]
    channel_of: np.ndarray

    def per_channel(self, values: np.ndarray, num_channels: int) -> np.ndarray:
        """values [K] >= 0 of input features -> [C], the largest among those of one channel; 0 if it has no feature"""
        largest = np.zeros(num_channels, dtype=values.dtype)
        np.maximum.at(largest, self.channel_of, values)
        return largest


def find_folds(layer: Layer, *, pairs: bool = True) -> list[Fold]:
    """The folds by which linears of the layer that get a quantized format can be scaled, in the table's order.

    pairs    also those from linear to linear
    raises   InputError where a tensor that a fold has to change is not in the layer, as another method has it
    """
    if layer.config is None:
        return []
    numbers = {split_name(name)[1] for name in layer.weights}
    expected = {name: want.shape for name, want in expected_tensors(layer.config).items()}
    here = {name: shape for name, shape in expected.items() if split_name(name)[1] in numbers - {None}}
    folds = []
    for row in FOLDS:
        for source, readers in instances(row, here):
            if (pairs or len(here[source]) == 1) and any(_is_quantized(layer, reader) for reader in readers):
                _check_whole(layer, source, readers)
                folds.append(Fold(source, readers, channels(row.through, layer.config, here[readers[0]][1])))
    return folds


class FoldedLayer:
    """The layer's tensors with scales folded in; the layer itself is left as it was.

    weights   canonical name -> [N, K] float32
    vectors   those that changed, in their format: the folded values are the ones that the format holds
    divisors  name of a reader -> [K] float32, divisor of its input from now on
    """

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.weights = dict(layer.weights)
        self.vectors: dict[str, QTensor] = {}
        self.divisors: dict[str, np.ndarray] = {}

    def num_channels(self, fold: Fold) -> int:
        source = self.layer.vectors.get(fold.source)
        return len(self.weights[fold.source] if source is None else source)

    def apply(self, fold: Fold, scale: np.ndarray) -> None:
        """scale [C] float32 > 0: the source's outputs are divided by it, the readers' features multiplied"""
        if fold.source in self.layer.vectors:
            scale = self._divide_norm(fold.source, scale)
        else:
            self.weights[fold.source] = self.weights[fold.source] / scale[:, None]
        bias = fold.source.removesuffix(".weight") + ".bias"
        if bias in self.layer.vectors:
            self.vectors[bias] = self._stored(bias, self.layer.vectors[bias] / scale)
        of_feature = scale[fold.channel_of]
        for reader in fold.readers:
            self.weights[reader] = self.weights[reader] * of_feature
            self.divisors[reader] = of_feature

    def _divide_norm(self, name: str, scale: np.ndarray) -> np.ndarray:
        """The scale that the norm, rounded to its format, was divided by: the readers make up for the rounding."""
        norm = self.layer.vectors[name]
        self.vectors[name] = self._stored(name, norm / scale)
        rounded = dequantize(self.vectors[name])
        return np.divide(norm, rounded, out=scale.copy(), where=rounded != 0)

    def _stored(self, name: str, vector: np.ndarray) -> QTensor:
        return get_format(self.layer.formats[name]).quantize(vector.astype(np.float32))


def channels(through: str | None, config: ModelConfig, row_size: int) -> np.ndarray:
    """[row_size] int64: the channel of a fold's source that each input feature of its readers is."""
    feature = np.arange(row_size)
    if through is None:
        return feature
    if through == "heads":
        head, channel = np.divmod(feature, config.head_dim)
        return head // (config.num_heads // config.num_kv_heads) * config.head_dim + channel
    mla = present(config.mla)
    head, channel = np.divmod(feature, mla.v_head_dim)
    key_size = mla.qk_nope_head_dim
    return head * (key_size + mla.v_head_dim) + key_size + channel


def _is_quantized(layer: Layer, name: str) -> bool:
    return name in layer.weights and layer.formats[name] not in FLOATS


def instances(row: FoldRow, names: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Source and readers of the row among these names, once for each layer, and each expert if it is an expert's."""
    split = [(*split_name(name), name) for name in names]
    for kind, layer, expert, source in split:
        if kind == row.source:
            of_source = (
                name
                for kind, *place, name in split
                if kind in row.readers and place[0] == layer and expert in (None, place[1])
            )
            if readers := tuple(of_source):
                yield source, readers


def _check_whole(layer: Layer, source: str, readers: tuple[str, ...]) -> None:
    missing = [name for name in (source, *readers) if name not in layer.weights and name not in layer.vectors]
    if missing:
        instead = "" if source in layer.vectors else ", or the option pairs: false"
        raise InputError(
            f"a scale between {source} and what reads it has to change {missing[0]}, which the recipe gives to another "
            f"method; give {', '.join((source, *readers))} one method{instead}"
        )
