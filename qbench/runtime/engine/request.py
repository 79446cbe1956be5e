"""The requests of an engine, its events, and the errors that refuse a request."""

from collections.abc import Collection
from dataclasses import dataclass, field

from qbench.runtime.text.generate import check_lengths
from qbench.runtime.text.sampling import Sampling
from quant.errors import InputError
from quant.models import ModelConfig


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to continue.

    stop_ids       tokens that end the text, themselves left out; None: the model's own
    stop_strings   texts that end it, themselves left out; they need an engine with a tokenizer
    logprobs       log-probabilities of each token, and of so many of the likeliest; None: not computed
    version        of the prompt's sources: pages are shared only by requests of one version
    scores_prompt  compute the log-probabilities of the prompt's tokens, too: all of the prompt is computed then, and it
                   may be followed by no new token
    """

    tokens: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 128
    stop_ids: Collection[int] | None = None
    stop_strings: tuple[str, ...] = ()
    logprobs: int | None = None
    version: str | None = None
    scores_prompt: bool = False

    def check(self, config: ModelConfig) -> None:
        """raises InputError for requests that the model cannot answer"""
        check_lengths(len(self.tokens), self.max_new_tokens, most_tokens(config), 0 if self.scores_prompt else 1)
        vocab_size = config.vocab_size
        if not 0 <= min(self.tokens) <= max(self.tokens) < vocab_size:
            wrong = next(token for token in self.tokens if not 0 <= token < vocab_size)
            raise InputError(f"token id {wrong} is outside the vocabulary, expected 0 to {vocab_size - 1}")
        if self.logprobs is not None and not 0 <= self.logprobs <= vocab_size:
            raise InputError(f"logprobs is {self.logprobs}, expected 0 to {vocab_size}")


def most_tokens(config: ModelConfig) -> int:
    """Largest length of a prompt and its answer: the context, but no further than to where a rotation changes, since
    cached keys were rotated as a shorter text's
    """
    changes_at = config.rope.changes_at if config.has_rope else None
    return config.max_positions if changes_at is None else min(config.max_positions, changes_at)


@dataclass(frozen=True, slots=True)
class Event:
    """News of one request.

    kind           "token"; "finished", its last; or "failed", its last, too, with the reason in `error`
    text           the part that became certain; None in an engine without a tokenizer
    finish_reason  "stop": a stop token or string; "length": max_new_tokens; "abort"
    prompt         of the first event if the prompt was scored: an event per token of it, the first one without scores
    """

    request_id: int
    kind: str
    token: int | None = None
    text: str | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: str | None = None
    error: str | None = None
    prompt: tuple["Event", ...] = ()


class QueueFull(InputError):
    """As many requests wait as may: try again later."""


class NeverFits(InputError):
    """The request needs more pages than there are, even alone."""
