"""The shapes of answers: whole or in chunks, of completions and of chats."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from qbench.runtime import Tokenizer
from qbench.runtime.engine import Event
from qbench.runtime.text.token_text import TokenTexts
from qbench.runtime.text.tokenizer import TextStream
from qbench.serve.wire import (
    AnyChoice,
    Body,
    ChatChoice,
    ChatDelta,
    ChatLogprobs,
    CompletionChoice,
    CompletionLogprobs,
    Delta,
    Head,
    ScoredToken,
    TokenScore,
    Usage,
)
from quant.present import present


@dataclass(slots=True)
class Choice:
    """Output of one request so far."""

    texts: list[str] = field(default_factory=list)
    scored: list[Event] = field(default_factory=list)  # tokens with log-probabilities
    prompt: tuple[Event, ...] = ()
    num_tokens: int = 0
    finish_reason: str | None = None

    def add(self, event: Event) -> None:
        self.texts.append(event.text or "")
        self.prompt = self.prompt or event.prompt
        if event.kind == "token":
            self.num_tokens += 1
            if event.logprob is not None:
                self.scored.append(event)
        self.finish_reason = event.finish_reason

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Answer(ABC):
    """One answer under one id. The two APIs differ in the form of a choice."""

    kind: str
    chunk_kind: str
    id_prefix: str

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        self.texts = TokenTexts(tokenizer)
        self._head: Head = {"id": f"{self.id_prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Choice], num_prompt_tokens: int) -> Body:
        body = self._body(self.kind, [self.choice(index, choice) for index, choice in enumerate(choices)])
        return {**body, "usage": usage_of(choices, num_prompt_tokens)}

    def chunk(self, index: int, event: Event) -> Body:
        return self._body(self.chunk_kind, [self.delta(index, event)])

    def opening(self, index: int) -> Body | None:
        """A chunk before the first of a choice, or None."""
        return None

    def usage_chunk(self, choices: Sequence[Choice], num_prompt_tokens: int) -> Body:
        return {**self._body(self.chunk_kind, []), "usage": usage_of(choices, num_prompt_tokens)}

    @abstractmethod
    def choice(self, index: int, choice: Choice) -> AnyChoice: ...

    @abstractmethod
    def delta(self, index: int, event: Event) -> AnyChoice: ...

    def _body(self, kind: str, choices: list[AnyChoice]) -> Body:
        return {**self._head, "object": kind, "choices": choices}


class CompletionAnswer(Answer):
    """echoed    the prompt of each choice, if they are shown before its text; else empty
    is_scored  whether log-probabilities are shown
    """

    kind = chunk_kind = "text_completion"
    id_prefix = "cmpl"

    def __init__(
        self, model: str, tokenizer: Tokenizer, echoed: Sequence[Sequence[int]] = (), is_scored: bool = False
    ) -> None:
        super().__init__(model, tokenizer)
        self.echoed, self.is_scored = echoed, is_scored
        self._streams: dict[int, tuple[TextStream, int]] = {}  # choice -> texts of its tokens, their characters

    def choice(self, index: int, choice: Choice) -> CompletionChoice:
        text = self._prompt(index) + choice.text
        scored = [*choice.prompt, *choice.scored] if self.is_scored else []
        texts = self.texts.joined([present(event.token) for event in scored], self._stream())
        logprobs = self._logprobs(scored, texts, 0)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": choice.finish_reason}

    def opening(self, index: int) -> Body | None:
        """The prompt; with log-probabilities it comes with the first event."""
        if not self.echoed or self.is_scored:
            return None
        shown: CompletionChoice = {
            "index": index,
            "text": self._prompt(index),
            "logprobs": None,
            "finish_reason": None,
        }
        return self._body(self.chunk_kind, [shown])

    def delta(self, index: int, event: Event) -> CompletionChoice:
        text = (self._prompt(index) if event.prompt and self.is_scored else "") + (event.text or "")
        scored = [one for one in (*event.prompt, event) if one.kind == "token"] if self.is_scored else []
        logprobs = self._next(index, scored)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": event.finish_reason}

    def _prompt(self, index: int) -> str:
        if not self.echoed:
            return ""
        stream = self._stream()
        return "".join(map(stream.push, self.echoed[index]))

    def _stream(self) -> TextStream:
        """Texts of the tokens of a choice: those of a prompt begin a text."""
        return self.texts.tokenizer.stream() if self.echoed else self.texts.stream()

    def _next(self, index: int, events: Sequence[Event]) -> CompletionLogprobs | None:
        """Log-probabilities of the tokens of a chunk, after those of the chunks before it."""
        stream, start = self._streams.setdefault(index, (self._stream(), 0))
        texts = [stream.push(present(event.token)) for event in events]
        self._streams[index] = stream, start + sum(map(len, texts))
        return self._logprobs(events, texts, start)

    def _logprobs(self, events: Sequence[Event], texts: Sequence[str], start: int) -> CompletionLogprobs | None:
        if not events:
            return None
        offsets = [start]
        for text in texts[:-1]:
            offsets.append(offsets[-1] + len(text))
        tops = [self._tops(event) for event in events]
        scores = [event.logprob for event in events]
        return {"tokens": list(texts), "token_logprobs": scores, "top_logprobs": tops, "text_offset": offsets}

    def _tops(self, event: Event) -> dict[str, float] | None:
        """Names -> log-probabilities; of two tokens of one text the less likely has its entry in the vocabulary."""
        if event.logprob is None:
            return None
        found: dict[str, float] = {}
        for token, score in event.top_logprobs:
            name = self.texts.name(token)
            found[name if name not in found else self.texts.piece(token)] = score
        return found


class ChatAnswer(Answer):
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def opening(self, index: int) -> Body:
        delta: Delta = {"role": "assistant", "content": ""}
        shown: ChatDelta = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._body(self.chunk_kind, [shown])

    def choice(self, index: int, choice: Choice) -> ChatChoice:
        return {
            "index": index,
            "message": {"role": "assistant", "content": choice.text},
            "logprobs": self._logprobs(choice.scored),
            "finish_reason": choice.finish_reason,
        }

    def delta(self, index: int, event: Event) -> ChatDelta:
        delta: Delta = {"content": event.text} if event.text else {}
        logprobs = self._logprobs([] if event.logprob is None else [event])
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": event.finish_reason}

    def _logprobs(self, events: Sequence[Event]) -> ChatLogprobs | None:
        return {"content": [self._scored(event) for event in events]} if events else None

    def _scored(self, event: Event) -> ScoredToken:
        tops = [self._score(token, score) for token, score in event.top_logprobs]
        return {**self._score(present(event.token), present(event.logprob)), "top_logprobs": tops}

    def _score(self, token: int, score: float) -> TokenScore:
        return {"token": self.texts.text(token), "logprob": score, "bytes": self.texts.bytes_of(token)}


def usage_of(choices: Sequence[Choice], num_prompt_tokens: int) -> Usage:
    num_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
    }
