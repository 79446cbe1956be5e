"""From a text's token ids to the windows that a model is calibrated on."""

from pathlib import Path
from random import Random

import numpy as np

from qbench.calibration.options import GENERATED, RANDOM, SEQ_LEN, CalibrationOptions, is_file_spec
from qbench.calibration.texts import Tokens, default_text, read_tokens
from quant.artifacts.file_bytes import sha256_file
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source

# Tokens read at most, as a multiple of those used: windows are then spread over the start of an endless text.
READ_FACTOR = 16


def calibration_tokens(source: Source, options: CalibrationOptions) -> CalibrationTokens:
    """Windows of the text without overlap, drawn by the seed and kept in the text's order.

    raises   InputError for a text that cannot be read, or is shorter than one window
    """
    text = options.text or default_text(source)
    seq_len = window_seq_len(source, options)
    factor = 1 if text in (GENERATED, RANDOM) else READ_FACTOR  # a seed's documents are drawn already
    tokens = _first(read_tokens(text, source, options.seed), options.samples * seq_len * factor)
    num_windows = len(tokens) // seq_len
    if not num_windows:
        raise InputError(
            f"calibration text {text} has {len(tokens)} tokens, shorter than one window of {seq_len}; "
            "give a longer text, or a smaller --seq-len"
        )
    chosen = sorted(Random(options.seed).sample(range(num_windows), min(options.samples, num_windows)))
    windows = tokens[: num_windows * seq_len].reshape(num_windows, seq_len)[chosen]
    text_sha256 = sha256_file(Path(text)) if is_file_spec(text) else None
    return CalibrationTokens(windows, text, options.seed, options.samples, text_sha256)


def window_seq_len(source: Source, options: CalibrationOptions) -> int:
    return options.seq_len or min(SEQ_LEN, ModelConfig.of(source).max_positions)


def _first(runs: Tokens, num_tokens: int) -> np.ndarray:
    """[T] int64, T <= num_tokens"""
    taken: list[np.ndarray] = []
    missing = num_tokens
    for run in runs:
        taken.append(run[:missing])
        missing -= len(taken[-1])
        if not missing:
            break
    return np.concatenate(taken) if taken else np.empty(0, dtype=np.int64)
