"""The shapes of answers: whole or in chunks, of completions and of chats."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qbench.runtime import Tokenizer
from qbench.runtime.engine import Event
from quant.present import present


@dataclass(slots=True)
class Choice:
    """What has come of one request so far."""

    texts: list[str] = field(default_factory=list)
    scored: list[Event] = field(default_factory=list)  # tokens with log-probabilities
    num_tokens: int = 0
    finish_reason: str | None = None

    def add(self, event: Event) -> None:
        self.texts.append(event.text or "")
        if event.kind == "token":
            self.num_tokens += 1
            if event.logprob is not None:
                self.scored.append(event)
        self.finish_reason = event.finish_reason

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Answer(ABC):
    """One answer under one id. What differs between the two APIs is what a choice looks like."""

    kind: str
    chunk_kind: str
    id_prefix: str

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._head = {"id": f"{self.id_prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Choice], num_prompt_tokens: int) -> dict[str, Any]:
        shown = [
            {"index": index, **self.choice(choice), "finish_reason": choice.finish_reason}
            for index, choice in enumerate(choices)
        ]
        usage = usage_of(choices, num_prompt_tokens)
        return self._head | {"object": self.kind, "choices": shown, "usage": usage}

    def chunk(self, index: int, event: Event) -> dict[str, Any]:
        shown = {"index": index, **self.delta(event), "finish_reason": event.finish_reason}
        return self._head | {"object": self.chunk_kind, "choices": [shown]}

    def opening(self, index: int) -> dict[str, Any] | None:
        """A chunk before the first of a choice, or None."""
        return None

    def usage_chunk(self, choices: Sequence[Choice], num_prompt_tokens: int) -> dict[str, Any]:
        return self._head | {"object": self.chunk_kind, "choices": [], "usage": usage_of(choices, num_prompt_tokens)}

    @abstractmethod
    def choice(self, choice: Choice) -> dict[str, Any]: ...

    @abstractmethod
    def delta(self, event: Event) -> dict[str, Any]: ...

    def token_text(self, token: int) -> str:
        return self.tokenizer.decode([token], skip_special=False)


class CompletionAnswer(Answer):
    kind = chunk_kind = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(model, tokenizer)
        self._offsets: dict[int, int] = {}  # of each choice: characters of the tokens told with log-probabilities

    def choice(self, choice: Choice) -> dict[str, Any]:
        return {"text": choice.text, "logprobs": self._logprobs(choice.scored, 0)}

    def delta(self, event: Event) -> dict[str, Any]:
        scored = [] if event.logprob is None else [event]
        start = self._offsets.get(event.request_id, 0)
        self._offsets[event.request_id] = start + sum(len(self.token_text(present(each.token))) for each in scored)
        return {"text": event.text or "", "logprobs": self._logprobs(scored, start)}

    def _logprobs(self, events: Sequence[Event], start: int) -> dict[str, Any] | None:
        if not events:
            return None
        texts = [self.token_text(present(event.token)) for event in events]
        offsets = [start]
        for text in texts[:-1]:
            offsets.append(offsets[-1] + len(text))
        # Parts of characters all read U+FFFD: of tokens with one text the likeliest, which is put in last, stays.
        tops = [{self.token_text(token): score for token, score in reversed(event.top_logprobs)} for event in events]
        scores = [event.logprob for event in events]
        return {"tokens": texts, "token_logprobs": scores, "top_logprobs": tops, "text_offset": offsets}


class ChatAnswer(Answer):
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        shown = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._head | {"object": self.chunk_kind, "choices": [shown]}

    def choice(self, choice: Choice) -> dict[str, Any]:
        message = {"role": "assistant", "content": choice.text}
        return {"message": message, "logprobs": self._logprobs(choice.scored)}

    def delta(self, event: Event) -> dict[str, Any]:
        delta = {"content": event.text} if event.text else {}
        return {"delta": delta, "logprobs": self._logprobs([] if event.logprob is None else [event])}

    def _logprobs(self, events: Sequence[Event]) -> dict[str, Any] | None:
        if not events:
            return None
        return {
            "content": [
                self._score(present(event.token), present(event.logprob))
                | {"top_logprobs": [self._score(token, score) for token, score in event.top_logprobs]}
                for event in events
            ]
        }

    def _score(self, token: int, score: float) -> dict[str, Any]:
        text = self.token_text(token)
        is_whole = "\N{REPLACEMENT CHARACTER}" not in text  # else it is a part of a character, whose bytes are not told
        return {"token": text, "logprob": score, "bytes": list(text.encode()) if is_whole else None}


def usage_of(choices: Sequence[Choice], num_prompt_tokens: int) -> dict[str, int]:
    num_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
    }
