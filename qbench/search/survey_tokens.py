"""The parts of the calibration text that a survey reads: fewer tokens than a quantization reads, for each purpose.

A survey compares formats; its figures need a few percent of precision, not the last bit of a Hessian.
"""

from dataclasses import replace

import numpy as np

from quant.calibration.tokens import CalibrationTokens
from quant.models import ModelConfig

HESSIAN_SHARE = 4  # one window of so many
TOKENS_PER_FEATURE = 4  # at least: with fewer, error feedback would fit the tokens at hand and look better than it is
# Divergence varies more from window to window than within one, so pieces of many windows say more per token. Shorter
# pieces would mislead: the first hundred tokens of a context diverge twice as much as the rest, by other tensors.
PIECE = 256
SINGLE_SHARE = 0.25  # layer passes of all probes of one group, over those of one pass over the calibration text
# Tokens of a probe of all groups, over those of the calibration text: it scales the losses of a kind of rounding alone.
JOINT_SHARE = 0.04
FEWEST_PIECES = 4
KV_SHARE = 0.15  # layer passes of all probes of KV formats, over those of one pass over the calibration text
KV_WINDOW = 2048  # as long as the windows that most published perplexities are measured on
FEWEST_WINDOWS = 2


def hessian_windows(calibration: CalibrationTokens, largest_row: int, config: ModelConfig) -> CalibrationTokens:
    """Windows for the Hessians. largest_row: features of the widest input; an expert sees its share of the tokens"""
    windows, seq_len = calibration.tokens.shape
    wanted = max(windows / HESSIAN_SHARE, TOKENS_PER_FEATURE * largest_row / config.expert_share / seq_len)
    return replace(calibration, tokens=_spread(calibration.tokens, int(np.ceil(wanted))))


def single_tokens(tokens: np.ndarray, num_groups: int) -> np.ndarray:
    """Pieces for probes of one group. Passes start at their own layer, so each runs half of the layers on average."""
    return _pieces(tokens, 2 * SINGLE_SHARE / num_groups)


def joint_tokens(tokens: np.ndarray) -> np.ndarray:
    """Pieces for probes of all groups."""
    return _pieces(tokens, JOINT_SHARE)


def kv_tokens(tokens: np.ndarray, num_passes: int, context: int) -> np.ndarray:
    """Windows for probes of KV formats and of policies. num_passes: of these probes; context: tokens of the cache"""
    joined = kv_windows(tokens, context)
    return _spread(joined, max(FEWEST_WINDOWS, int(KV_SHARE * tokens.size / joined.shape[1] / num_passes)))


def kv_windows(tokens: np.ndarray, context: int) -> np.ndarray:
    """Windows joined to longer ones: divergence grows with the number of rounded tokens. context: of the cache"""
    num_windows, seq_len = tokens.shape
    longest = min(context, KV_WINDOW)
    together = min(max(1, longest // seq_len), num_windows)
    num_joined = num_windows // together
    return tokens[: num_joined * together].reshape(num_joined, -1)[:, :longest]


def _pieces(tokens: np.ndarray, share: float) -> np.ndarray:
    pieces = tokens[:, :PIECE]
    return _spread(pieces, max(FEWEST_PIECES, int(share * tokens.size / pieces.shape[1])))


def _spread(windows: np.ndarray, most: int) -> np.ndarray:
    num = min(most, len(windows))
    return windows[np.arange(num) * len(windows) // num]
