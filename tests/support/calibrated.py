"""A small model quantized layer by layer, with statistics taken in the plainest way: all inputs at once."""

from collections.abc import Callable

import numpy as np
import torch
from support.array_source import ArraySource
from support.calibration import layer_tensors

from qbench.runtime.streamed import StreamedDecoder
from quant.formats import dequantize
from quant.methods import Layer, Method
from quant.models import ModelConfig, names_by_layer
from quant.source import Source
from quant.stats import InputStats

SAMPLE_ROWS = 512


class Inputs:
    """Observer that keeps the inputs of every linear."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, ...], torch.Tensor] = {}

    def inputs(self, names, x: torch.Tensor) -> None:
        self.seen[tuple(names)] = x.flatten(0, -2)

    def keys_values(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        pass

    def stats(self) -> dict[str, InputStats]:
        return {
            name: stats for names, x in self.seen.items() for name, stats in _shared_stats(names, x.numpy()).items()
        }


def calibrated(
    source: Source,
    tokens: torch.Tensor,
    method: Method,
    format_of: Callable[[str], str],
    vectors: str = "f32",
) -> ArraySource:
    """The model with the linears of its decoder layers quantized; everything else in float32.

    tokens      [B, T] int64, the calibration text
    format_of   canonical name of a linear -> format
    vectors     format of the norms and biases
    """
    decoder, config = StreamedDecoder(ModelConfig.of(source)), ModelConfig.of(source)
    made = {name: dequantize(source.read(name)) for name in source.tensors}
    x = decoder.embed(layer_tensors(source, None), tokens)
    for index in range(decoder.config.num_layers):
        names, inputs = names_by_layer(config)[index], Inputs()
        x = decoder.layer(index, layer_tensors(source, index))(x, inputs)
        weights = {name: made[name] for name in names if made[name].ndim == 2}
        norms = {name: made[name] for name in names if made[name].ndim == 1}
        formats = {name: format_of(name) for name in weights} | dict.fromkeys(norms, vectors)
        made |= method.quantize_layer(Layer(weights, formats, norms, config), inputs.stats())
    return ArraySource(source.config, made, tokenizer=source.tokenizer)


def _shared_stats(names: tuple[str, ...], x: np.ndarray) -> dict[str, InputStats]:
    rows = np.arange(min(len(x), SAMPLE_ROWS)) * len(x) // max(min(len(x), SAMPLE_ROWS), 1)
    stats = InputStats(
        num_tokens=len(x),
        absmax=np.abs(x).max(axis=0, initial=0),
        sum_squares=np.square(x, dtype=np.float64).sum(axis=0).astype(np.float32),
        hessian=x.T @ x,
        sample=x[rows],
    )
    return dict.fromkeys(names, stats)
