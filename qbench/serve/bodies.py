"""Requests of clients, field by field, as OpenAI's API names them; unknown fields are refused, never ignored."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from qbench.runtime.text.sampling import MOST_BIAS, MOST_PENALTY, Nudges
from qbench.serve.template_sandbox import RESERVED

MAX_CHOICES = 128  # of one request: OpenAI's limit
MOST_BIASES = 1024
MOST_PROMPTS = 2048  # of one request: OpenAI's limit
MOST_MESSAGES = 1 << 14  # more than a context of a million tokens has turns
MOST_STOP_CHARS = 1024
MOST_TEMPLATE_VALUES = 64  # of chat_template_kwargs
TOP_LOGPROBS = 20  # the most that the chat API grants


def at_most(most: int) -> Callable[[Any], Any]:
    """A check of the length alone, before any entry is looked at: each wrong entry may become an error of its own."""

    def check(value: Any) -> Any:
        is_ids = isinstance(value, list) and value and type(value[0]) is int
        if isinstance(value, list | dict) and not is_ids and len(value) > most:
            raise PydanticCustomError(
                "too_long", "has {length} entries, expected at most {most}", {"length": len(value), "most": most}
            )
        return value

    return check


def only(*values: JsonValue) -> BeforeValidator:
    """A check that refuses every other value. Types count: 0 is not false."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            expected = " or ".join(map(json.dumps, values))
            raise PydanticCustomError("neutral", "expected {expected}; not supported otherwise", {"expected": expected})
        return value

    return BeforeValidator(check)


def as_parts(value: Any) -> Any:
    """A check that makes the content of a message a list of parts, so that an error names the part that is wrong."""
    if value is None:
        raise PydanticCustomError("null", "is null, expected a text; messages with tool calls are not supported")
    if not isinstance(value, str | list):
        raise PydanticCustomError("content", "expected a text or a list of parts with text")
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def free_names(values: Any) -> Any:
    """A check of chat_template_kwargs: some variables of a template are set by the server."""
    if isinstance(values, dict) and (name := next((name for name in RESERVED if name in values), None)) is not None:
        raise PydanticCustomError("reserved", "the server itself sets {name}", {"name": name})
    return values


Stop = str | Annotated[list[str], Field(max_length=16, fail_fast=True)] | None
# A list of a million wrong entries would otherwise become a million errors.
Ids = Annotated[list[int], Field(fail_fast=True)]

TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]  # a key of JSON is text
Bias = Annotated[float, Field(ge=-MOST_BIAS, le=MOST_BIAS)]
Prompt = str | Ids | Annotated[list[str], Field(fail_fast=True)] | Annotated[list[Ids], Field(fail_fast=True)]


class Fields(BaseModel):
    """An object that has no other fields. A field that is null is absent, unless the object needs it."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _given(cls, fields: Any) -> Any:
        """At most one unknown field is left: each would become an error, and a body has room for 90,000."""
        if type(fields) is not dict:
            return fields
        needed = {name for name, field in cls.model_fields.items() if field.is_required()}
        given = {name: value for name, value in fields.items() if value is not None or name in needed}
        unknown = next((name for name in given if name not in cls.model_fields), None)
        return {name: value for name, value in given.items() if name == unknown or name in cls.model_fields}


class StreamOptions(Fields):
    """continuous_usage_stats: vLLM's word; with include_usage, every chunk has the usage so far"""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingFields(Fields):
    """Fields of both APIs. top_k, min_p and repetition_penalty are not OpenAI's, but most servers of its API have them.

    top_k       0 or -1: all tokens
    seed        -1: drawn at random, as without a seed
    ignore_eos  vLLM's word, which load generators use: the text goes on past end tokens, to the limit of tokens
    cache_salt  vLLM's word: prefixes are shared only by requests of one salt, as of a document's version
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    temperature: float = Field(1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int = Field(0, ge=-1, le=1 << 31)
    min_p: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    repetition_penalty: float = Field(1.0, gt=0, le=100, allow_inf_nan=False)
    presence_penalty: float = Field(0.0, ge=-MOST_PENALTY, le=MOST_PENALTY)
    frequency_penalty: float = Field(0.0, ge=-MOST_PENALTY, le=MOST_PENALTY)
    logit_bias: Annotated[dict[TokenId, Bias], BeforeValidator(at_most(MOST_BIASES))] = Field(default_factory=dict)
    seed: int = Field(-1, ge=-1, lt=1 << 62)
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    stop: Stop = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    user: str | None = None
    cache_salt: str | None = Field(None, min_length=1)

    @property
    def nudges(self) -> Nudges | None:
        biases = tuple((int(token), bias) for token, bias in self.logit_bias.items())
        found = Nudges(self.presence_penalty, self.frequency_penalty, biases)
        return None if found == Nudges() else found

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class NeutralSampling(Fields):
    """Fields of both APIs that clients of vLLM send with values that change nothing.

    min_tokens   with ignore_eos and without stop strings nothing ends a text early
    """

    min_tokens: int = Field(0, ge=0, le=1 << 31)
    stop_token_ids: Annotated[Any, only([])] = None
    length_penalty: Annotated[Any, only(1, 1.0)] = None
    use_beam_search: Annotated[Any, only(False)] = None
    skip_special_tokens: Annotated[Any, only(True)] = None
    spaces_between_special_tokens: Annotated[Any, only(False, True)] = None
    include_stop_str_in_output: Annotated[Any, only(False)] = None


class CompletionBody(SamplingFields, NeutralSampling):
    prompt: Annotated[Prompt, BeforeValidator(at_most(MOST_PROMPTS))]
    max_tokens: int = Field(16, ge=0, le=1 << 31)
    logprobs: int | None = Field(None, ge=0, le=TOP_LOGPROBS)
    echo: bool = False
    best_of: int | None = None


class TextPart(Fields):
    type: Literal["text"]
    text: str


class Message(Fields):
    """tool_calls, annotations: clients send the answers of other servers back with these empty lists"""

    role: str
    content: Annotated[
        list[TextPart], Field(fail_fast=True), BeforeValidator(at_most(MOST_MESSAGES)), BeforeValidator(as_parts)
    ]
    name: str | None = None
    tool_calls: Annotated[Any, only([])] = None
    annotations: Annotated[Any, only([])] = None

    def as_template_sees_it(self) -> dict[str, str]:
        content = "".join(part.text for part in self.content)
        return {"role": self.role, "content": content} | ({} if self.name is None else {"name": self.name})


class NeutralFields(NeutralSampling):
    """Fields of chats that clients send with values that change nothing."""

    response_format: Annotated[Any, only({"type": "text"})] = None
    modalities: Annotated[Any, only(["text"])] = None
    tools: Annotated[Any, only([])] = None
    tool_choice: Annotated[Any, only("none")] = None
    parallel_tool_calls: Annotated[Any, only(False, True)] = None
    functions: Annotated[Any, only([])] = None
    function_call: Annotated[Any, only("none")] = None
    store: Annotated[Any, only(False)] = None
    metadata: Annotated[Any, only({})] = None
    service_tier: Annotated[Any, only("auto", "default")] = None


class ChatBody(SamplingFields, NeutralFields):
    """chat_template_kwargs: vLLM's word; more variables of the chat template, such as Qwen3's enable_thinking"""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True), BeforeValidator(at_most(MOST_MESSAGES))]
    max_tokens: int | None = Field(None, ge=1, le=1 << 31)
    max_completion_tokens: int | None = Field(None, ge=1, le=1 << 31)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=TOP_LOGPROBS)
    chat_template_kwargs: Annotated[
        dict[str, JsonValue], BeforeValidator(at_most(MOST_TEMPLATE_VALUES)), BeforeValidator(free_names)
    ] = Field(default_factory=dict)
