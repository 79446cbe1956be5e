"""From logits to the next token: greedy, or drawn from a tempered, cut distribution."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick a token: temperature 0 is greedy; top_k 0 and top_p 1 keep everything."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}, expected 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.top_k < 0:
            raise InputError(f"top_k is {self.top_k}, expected 0 (off) or more")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}, expected 0 to 2**63 - 1")


class Sampler:
    """Draws tokens one by one; the same seed gives the same draws."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.generator = torch.Generator().manual_seed(sampling.seed)

    @torch.inference_mode()
    def __call__(self, logits: Tensor) -> int:
        """logits [V] -> a token id"""
        if self.sampling.temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial(probabilities(logits, self.sampling), 1, generator=self.generator))


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that is drawn from: tempered, then cut to top_k, then to top_p of what is left.

    logits   [V] float; temperature above 0
    returns  [V] float64, sums to 1; top_p keeps the smallest set of likeliest tokens that reaches it
    source   Holtzman et al. 2019, arXiv:1904.09751, section 3.1 (top-p)
    """
    probs = torch.softmax(logits.double() / sampling.temperature, dim=-1)
    if sampling.top_k == 0 and sampling.top_p == 1:
        return probs
    ordered, order = probs.sort(descending=True, stable=True)
    if sampling.top_k:
        ordered[sampling.top_k :] = 0
        ordered /= ordered.sum()
    before = ordered.cumsum(0) - ordered  # mass of the likelier tokens
    ordered[before >= sampling.top_p] = 0
    return torch.zeros_like(probs).scatter(0, order, ordered / ordered.sum())
