"""Small models and windows for tests of calibration."""

import numpy as np
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.calibration.tokens import CalibrationTokens


def small_source(kind: str = "llama", **changes) -> ArraySource:
    """A random model of two layers, 64 wide."""
    config = small_config(kind, **changes)
    return ArraySource(config, random_weights(config))


def windows(samples: int = 6, length: int = 40, vocab_size: int = 160, seed: int = 0) -> CalibrationTokens:
    tokens = np.random.default_rng(seed).integers(0, vocab_size, (samples, length))
    return CalibrationTokens(tokens, {"text": "random", "seed": seed})
