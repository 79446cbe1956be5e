"""Penalties for tokens of the answer, and biases of tokens, added to logits before a token is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quant.errors import InputError

MOST_PENALTY, MOST_BIAS = 2.0, 100.0  # OpenAI's ranges


@dataclass(frozen=True, slots=True)
class Nudges:
    """presence_penalty   taken from the logit of each token that the answer holds
    frequency_penalty  taken from it as often as the answer holds the token
    logit_bias         (token id, value added to its logit)
    source             OpenAI's API reference, "frequency and presence penalties"
    """

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            if not -MOST_PENALTY <= getattr(self, name) <= MOST_PENALTY:
                raise InputError(f"{name} is {getattr(self, name)}, expected {-MOST_PENALTY:g} to {MOST_PENALTY:g}")
        for token, bias in self.logit_bias:
            if token < 0 or not -MOST_BIAS <= bias <= MOST_BIAS:
                raise InputError(
                    f"logit_bias of token {token} is {bias}, expected {-MOST_BIAS:g} to {MOST_BIAS:g} of an id from 0"
                )

    def check_vocabulary(self, size: int) -> None:
        """raises InputError for a token id that the model does not have"""
        for token, _ in self.logit_bias:
            if token >= size:
                raise InputError(f"logit_bias names token {token}, but the vocabulary has {size}")

    def added(self, logits: Tensor, answer: Sequence[int]) -> Tensor:
        """logits [V] float, answer: the tokens that were generated so far -> [V]"""
        logits = logits.clone()
        if answer and (self.presence_penalty or self.frequency_penalty):
            seen, counts = torch.tensor(answer).unique(return_counts=True)
            logits[seen] -= (self.presence_penalty + self.frequency_penalty * counts).to(logits.dtype)
        for token, bias in self.logit_bias:
            logits[token] += bias
        return logits
