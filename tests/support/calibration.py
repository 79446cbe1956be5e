"""Small models and windows for tests of calibration."""

import numpy as np
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.calibration.tokens import CalibrationTokens
from quant.models import ModelConfig, names_by_layer
from quant.qtensor import QTensor
from quant.source import Source


def small_source(kind: str = "llama", **changes) -> ArraySource:
    """A random model of two layers, 64 wide."""
    config = small_config(kind, **changes)
    return ArraySource(config, random_weights(config))


def layer_tensors(source: Source, layer: int | None) -> dict[str, QTensor]:
    """The tensors of a decoder layer; None: those outside all layers."""
    return {name: source.read(name) for name in names_by_layer(ModelConfig.of(source))[layer]}


def windows(samples: int = 6, length: int = 40, vocab_size: int = 160, seed: int = 0) -> CalibrationTokens:
    tokens = np.random.default_rng(seed).integers(0, vocab_size, (samples, length))
    return CalibrationTokens(tokens, "random", seed, samples)
