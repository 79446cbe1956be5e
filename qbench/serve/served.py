"""The served model: its name, and how texts become requests."""

import secrets
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qbench.runtime import ModelConfig, Sampling, Tokenizer
from qbench.runtime.engine import Engine, Request, most_tokens
from qbench.runtime.text.tokenizer import check_prompt_length
from qbench.serve.bodies import MOST_STOP_CHARS, ChatBody, CompletionBody
from qbench.serve.chat_template import ChatTemplate
from qbench.serve.conversation import conversation_tokens
from qbench.serve.engine_thread import EngineThread
from qbench.serve.errors import Refused
from qbench.serve.metrics import Metrics
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Served:
    """template      or the reason why it is missing
    max_seq_len   the most tokens of a prompt and its answer together: the context, or all pages if they hold less
    most_choices  that one request may ask for: as many as can wait
    """

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | str
    engine: EngineThread
    metrics: Metrics
    max_seq_len: int
    most_choices: int
    created: int = field(default_factory=lambda: int(time.time()))

    def check_name(self, name: str) -> None:
        """raises Refused"""
        if name != self.name:
            raise Refused(404, f"no model {name!r} is served here; there is {self.name!r}", "model_not_found")

    def completion_requests(self, body: CompletionBody) -> list[Request]:
        """n a prompt, in order. raises InputError"""
        if body.best_of not in (None, body.n):
            raise InputError(f"best_of is {body.best_of}, expected n, {body.n}: choices are not ranked here")
        if body.max_tokens == 0 and not body.echo:
            raise InputError("max_tokens is 0, expected at least 1 without echo")
        prompts = _listed(body.prompt)
        if len(prompts) * body.n > self.most_choices:
            raise InputError(
                f"{len(prompts)} prompts with n {body.n} ask for {len(prompts) * body.n} answers, expected at most "
                f"{self.most_choices} in one request"
            )
        prompts = [self._tokens(one) for one in prompts]
        asked = self._asked(body, body.max_tokens, body.logprobs)
        if body.echo and (body.logprobs is not None or body.max_tokens == 0):
            asked = replace(asked, scores_prompt=True)
        return [request for prompt in prompts for request in choices(replace(asked, tokens=prompt), body.n)]

    def chat_requests(self, body: ChatBody) -> list[Request]:
        """n of the conversation. raises InputError"""
        if isinstance(self.template, str):
            raise InputError(f"{self.name} answers /v1/completions alone: {self.template}")
        if body.top_logprobs is not None and not body.logprobs:
            raise InputError("top_logprobs needs logprobs true")
        messages = [message.as_template_sees_it() for message in body.messages]
        text = "\n".join(part for message in messages for part in message.values())
        check_prompt_length(self.tokenizer, text, self.max_seq_len)
        tokens = tuple(
            conversation_tokens(self.template, self.tokenizer, messages, self.max_seq_len, body.chat_template_kwargs)
        )
        max_tokens = body.max_completion_tokens or body.max_tokens or max(self.max_seq_len - len(tokens), 1)
        asked = self._asked(body, max_tokens, (body.top_logprobs or 0) if body.logprobs else None)
        return choices(replace(asked, tokens=tokens), body.n)

    def _asked(self, body: CompletionBody | ChatBody, max_tokens: int, logprobs: int | None) -> Request:
        """As `_request`. raises InputError for a biased token that the model does not have"""
        request = _request(body, max_tokens, logprobs)
        if request.sampling.nudges is not None:
            request.sampling.nudges.check_vocabulary(self.config.vocab_size)
        return request

    def _tokens(self, prompt: str | list[int]) -> tuple[int, ...]:
        """raises InputError for a text that is surely too long"""
        if not isinstance(prompt, str):
            return tuple(prompt)
        check_prompt_length(self.tokenizer, prompt, self.max_seq_len)
        return tuple(self.tokenizer.encode(prompt))


def served_seq_len(config: ModelConfig, engine: Engine) -> int:
    num_pages = engine.pool.num_pages // engine.caches.pages_per_row
    return bisect_right(range(1, most_tokens(config) + 1), num_pages, key=engine.pool.pages_for)


def choices(request: Request, n: int) -> list[Request]:
    """The request n times, each with a seed of its own."""
    sampling = request.sampling
    return [replace(request, sampling=replace(sampling, seed=sampling.seed + index)) for index in range(n)]


def _listed(prompt: str | list[int] | list[str] | list[list[int]]) -> list[str] | list[list[int]]:
    """raises InputError for one that is empty"""
    prompts: Any = [prompt] if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)) else prompt
    if not prompts or not all(len(one) for one in prompts):
        raise InputError("the prompt is empty, expected a text or token ids")
    return prompts


def _request(body: CompletionBody | ChatBody, max_tokens: int, logprobs: int | None) -> Request:
    """All but the prompt. Without a seed every request has its own random numbers."""
    seed = secrets.randbits(61) if body.seed == -1 else body.seed
    sampling = Sampling(
        body.temperature, body.top_p, max(body.top_k, 0), body.min_p, body.repetition_penalty, seed, body.nudges
    )
    if body.min_tokens and not (body.ignore_eos and not body.stop_strings):
        raise InputError(
            f"min_tokens is {body.min_tokens}, expected 0, or ignore_eos without stop strings; not supported otherwise"
        )
    if not all(body.stop_strings):
        raise InputError("a stop string is empty, expected at least one character")
    if (longest := max(map(len, body.stop_strings), default=0)) > MOST_STOP_CHARS:
        raise InputError(f"a stop string has {longest} characters, expected at most {MOST_STOP_CHARS}")
    return Request(
        (),
        sampling,
        max_tokens,
        stop_ids=() if body.ignore_eos else None,
        stop_strings=body.stop_strings,
        logprobs=logprobs,
        version=body.cache_salt,
    )


def names_of(models: Sequence[Served]) -> list[dict]:
    """As /v1/models lists them."""
    return [{"id": each.name, "object": "model", "created": each.created, "owned_by": "qbench"} for each in models]
