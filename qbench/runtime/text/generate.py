"""Text generation: one prefill, then a token per step, streamed as they come."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from qbench.runtime.text.sampling import LogProbabilities, Sampler, Sampling, log_probabilities
from quant.errors import InputError

DEFAULT_NEW_TOKENS = 128


class Limits(Protocol):
    """The part of a model's config that `generate` reads."""

    @property
    def max_positions(self) -> int: ...
    @property
    def eos_token_ids(self) -> Collection[int]: ...


class Continuing(Protocol):
    """A decoder that `generate` runs: a Model, or one with encoded inputs."""

    @property
    def config(self) -> Limits: ...
    def new_cache(self, *, capacity: int) -> Any: ...
    def __call__(self, tokens: Tensor, cache: Any = None, *, last_only: bool = False) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Generation:
    """The generated text and its speed."""

    tokens: tuple[int, ...]  # without the token that ended it
    stop_reason: str  # "eos", "stop" where on_token said so, or "length"
    ttft_ms: float  # prompt in to first token out
    tpot_ms: float | None  # per token after the first; None if there was no such token
    log_probabilities: tuple[LogProbabilities, ...] = ()  # one per token, if they were asked for


def generate(
    model: Continuing,
    tokens: Sequence[int],
    sampling: Sampling,
    max_new_tokens: int | None,
    on_token: Callable[[int], bool | None] | None = None,
    *,
    stop_ids: Collection[int] | None = None,
    logprobs: int | None = None,
) -> Generation:
    """Continue `tokens` until a stop token, a word from `on_token` or max_new_tokens.

    max_new_tokens  None: DEFAULT_NEW_TOKENS, or as many as the context has room for
    on_token  called with each token as soon as it is known; a true answer ends the text with it
    stop_ids  tokens that end the text, themselves left out; None: the model's own; (): no token ends it
    logprobs  log-probabilities of each token, and of so many of the likeliest
    raises    InputError for an empty prompt, or one that with max_new_tokens exceeds the context
    """
    max_new_tokens = num_new_tokens(max_new_tokens, len(tokens), model.config.max_positions)
    check_lengths(len(tokens), max_new_tokens, model.config.max_positions)
    stop_ids = model.config.eos_token_ids if stop_ids is None else stop_ids
    sampler = Sampler(sampling)
    cache = model.new_cache(capacity=len(tokens) + max_new_tokens)
    text, fed, generated, scores, times = list(tokens), list(tokens), [], [], [time.perf_counter()]
    while len(generated) < max_new_tokens:
        logits = model(torch.tensor([fed]), cache, last_only=True)[0, -1]  # [V]
        token = sampler(logits, text)
        times.append(time.perf_counter())
        if token in stop_ids:
            return _generation(generated, "eos", times, scores)
        generated.append(token)
        text.append(token)
        if logprobs is not None:
            scores.append(log_probabilities(logits, token, logprobs))
        if on_token is not None and on_token(token):
            return _generation(generated, "stop", times, scores)
        fed = [token]
    return _generation(generated, "length", times, scores)


def num_new_tokens(asked: int | None, num_prompt: int, max_positions: int) -> int:
    """The tokens asked for; for None DEFAULT_NEW_TOKENS, or as many as the context has room for, at least 1."""
    return max(1, min(DEFAULT_NEW_TOKENS, max_positions - num_prompt)) if asked is None else asked


def check_lengths(num_prompt: int, max_new_tokens: int, max_positions: int, fewest_new: int = 1) -> None:
    if num_prompt < 1:
        raise InputError("the prompt is empty, expected at least 1 token (a BOS token will do)")
    if max_new_tokens < fewest_new:
        raise InputError(f"max_new_tokens is {max_new_tokens}, expected at least {fewest_new}")
    max_new = max_positions - num_prompt
    if max_new_tokens > max_new:
        raise InputError(
            f"a prompt of {num_prompt} tokens and {max_new_tokens} new ones exceed the model's context of "
            f"{max_positions}; " + (f"ask for at most {max_new}" if max_new > 0 else "shorten the prompt")
        )


def _generation(tokens: list[int], stop_reason: str, times: list[float], scores: list[LogProbabilities]) -> Generation:
    num_later = len(times) - 2
    tpot_ms = (times[-1] - times[1]) / num_later * 1e3 if num_later else None
    return Generation(tuple(tokens), stop_reason, (times[1] - times[0]) * 1e3, tpot_ms, tuple(scores))
