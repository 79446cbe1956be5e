"""Log-probabilities of a token and of the likeliest ones, as the model gives them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class LogProbabilities:
    """In nats: of the token that was chosen, and of the likeliest, best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]  # (token id, log-probability)


@torch.inference_mode()
def log_probabilities(logits: Tensor, token: int, top: int) -> LogProbabilities:
    """Those of the model's own distribution: before temperature, cuts and penalties.

    logits   [V] float
    raises   InputError for a `top` outside 0 .. V
    """
    if not 0 <= top <= len(logits):
        raise InputError(f"{top} log-probabilities asked for, expected 0 to {len(logits)}")
    values = torch.log_softmax(logits.double(), dim=-1)
    best = values.topk(top)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return LogProbabilities(float(values[token]), tuple(pairs))
