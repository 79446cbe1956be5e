"""Largest distance of logits from the reference decoder's, as formulas of the arithmetic and the model's sizes."""

import torch

from quant.models import ModelConfig

FLOAT32 = 2.0**-24  # relative error of one rounding to float32
BF16 = 2.0**-9  # to bfloat16
INT8 = 2.0**-7  # of an 8-bit code, relative to a block's largest value


def num_products(config: ModelConfig) -> int:
    """Products that a token passes through: 7 per layer, and the head."""
    return 7 * config.num_layers + 1


def float32_bound(config: ModelConfig, expected: torch.Tensor) -> float:
    """Largest difference of float32 logits from exact ones; expected [B, T, V].

    A sum of K rounded terms errs by sqrt(K) roundings and a chain of n products by sqrt(n) times that; the rotation's
    angle at position t errs by t roundings.
    """
    longest = max(config.hidden_size, config.ffn_size, config.q_size)
    steps = (longest * num_products(config)) ** 0.5 + expected.shape[1]
    return FLOAT32 * steps * expected.abs().max().item()


def rounded_bound(config: ModelConfig, rounding: float) -> float:
    """Largest RMS difference over the standard deviation of logits whose products round inputs and sums by `rounding`.

    Both roundings of every product add as a walk.
    """
    return rounding * (2 * num_products(config)) ** 0.5


def relative_rms(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got.double() - expected).square().mean().sqrt() / expected.std()).item()
