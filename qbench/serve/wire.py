"""Answers of the OpenAI protocol, key by key as they go over the wire."""

from typing import NotRequired, TypedDict


class Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(TypedDict):
    """Lists with one entry per token; text_offset: characters before it; nothing predicts the first one of a prompt"""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None


class TokenScore(TypedDict):
    """bytes: None for a part of a character"""

    token: str
    logprob: float
    bytes: list[int] | None


class ScoredToken(TokenScore):
    top_logprobs: list[TokenScore]


class ChatLogprobs(TypedDict):
    content: list[ScoredToken]


class Message(TypedDict):
    role: str
    content: str


class Delta(TypedDict, total=False):
    """The part of a message that a chunk adds."""

    role: str
    content: str


class ChatChoice(TypedDict):
    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatDelta(TypedDict):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None


AnyChoice = CompletionChoice | ChatChoice | ChatDelta


class Head(TypedDict):
    id: str
    created: int
    model: str


class Body(Head):
    """An answer, or a chunk of one."""

    object: str
    choices: list[AnyChoice]
    usage: NotRequired[Usage]


class ErrorDetail(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    error: ErrorDetail
