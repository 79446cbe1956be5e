"""From a text's token ids to the windows that a model is calibrated on."""

from random import Random

import numpy as np

from qbench.calibration.texts import Tokens, default_text, read_tokens
from qbench.run.work import GENERATED, RANDOM, SEQ_LEN, CalibrationWork, text_file
from quant.artifacts.file_bytes import sha256_file
from quant.calibration.tokens import CalibrationTokens
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source

# Tokens read at most, as a multiple of those used: windows are then spread over the start of an endless text.
READ_FACTOR = 16


def calibration_tokens(source: Source, options: CalibrationWork) -> CalibrationTokens:
    """Windows of the text without overlap, drawn by the seed and kept in the text's order.

    raises   InputError for a text that cannot be read, or is shorter than one window
    """
    text = options.text or default_text(source)
    tokens, _ = _read(text, source, options)
    windows, chosen = _drawn(tokens, source, options, text)
    file = text_file(text)
    text_sha256 = None if file is None else sha256_file(file)
    return CalibrationTokens(windows[chosen], text, options.seed, options.samples, text_sha256)


def unused_tokens(source: Source, options: CalibrationWork, num_tokens: int) -> np.ndarray:
    """[T] int64, T <= num_tokens: the same text without the windows that `calibration_tokens` draws."""
    text = options.text or default_text(source)
    tokens, more = _read(text, source, options, num_tokens)
    windows, chosen = _drawn(tokens, source, options, text)
    others = np.delete(windows, chosen, axis=0)
    missing = min(-(-(num_tokens - len(more)) // windows.shape[1]), len(others))
    some = others[np.arange(missing) * len(others) // max(1, missing)]
    return np.concatenate([some.ravel(), more])[:num_tokens]


def _read(text: str, source: Source, options: CalibrationWork, num_more: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that windows are drawn from, and at most `num_more` that follow them."""
    factor = 1 if text in (GENERATED, RANDOM) else READ_FACTOR  # a seed's documents are drawn already
    num_tokens = options.samples * window_seq_len(source, options) * factor
    tokens = _first(read_tokens(text, source, options.seed), num_tokens + num_more)
    return tokens[:num_tokens], tokens[num_tokens:]


def _drawn(tokens: np.ndarray, source: Source, options: CalibrationWork, text: str) -> tuple[np.ndarray, list[int]]:
    """All windows [W, T] of the tokens, and the places of those that the seed draws."""
    seq_len = window_seq_len(source, options)
    num_windows = len(tokens) // seq_len
    if not num_windows:
        raise InputError(
            f"calibration text {text} has {len(tokens)} tokens, shorter than one window of {seq_len}; "
            "give a longer text, or a smaller --seq-len"
        )
    chosen = sorted(Random(options.seed).sample(range(num_windows), min(options.samples, num_windows)))
    return tokens[: num_windows * seq_len].reshape(num_windows, seq_len), chosen


def window_seq_len(source: Source, options: CalibrationWork) -> int:
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
