"""Requests that the server refuses, each with a status and a message that names the mistake."""

import json

import openai
import pytest
from support import patient

from qbench.serve.limits import ServeLimits

PROMPT = "Once upon a time"
GREEDY = {"model": "tiny", "temperature": 0}

WRONG = [
    pytest.param({"prompt": ""}, 400, "the prompt is empty", id="empty prompt"),
    pytest.param({"prompt": [[1, 2], []]}, 400, "the prompt is empty", id="an empty one among others"),
    pytest.param({"prompt": "x" * 600}, 400, "context of 512", id="longer than the context"),
    pytest.param({"max_tokens": 10**6}, 400, "context of 512; ask for at most", id="longer answer than the context"),
    pytest.param({"prompt": [1, 99999]}, 400, "99999 is outside the vocabulary", id="no such token"),
    pytest.param({"prompt": {"a": 1}}, 400, "prompt", id="no prompt at all"),
    pytest.param({"max_tokens": 0}, 400, "max_tokens", id="nothing asked"),
    pytest.param({"temperature": -1}, 400, "temperature", id="temperature"),
    pytest.param({"top_p": 0}, 400, "top_p", id="top_p"),
    pytest.param({"n": 1000}, 400, "n: ", id="n"),
    pytest.param({"stop": ["a", ""]}, 400, "stop string is empty", id="stop"),
    pytest.param({"suffix": "x"}, 400, "suffix: not supported by this server; supported are model, ", id="suffix"),
    pytest.param({"max_tokens": 0}, 400, "max_tokens is 0, expected at least 1 without echo", id="no tokens"),
    pytest.param({"frequency_penalty": 2.5}, 400, "frequency_penalty: Input should be less than or", id="penalty"),
    pytest.param({"logit_bias": {"9999999": 2}}, 400, "logit_bias names token 9999999", id="bias beyond"),
    pytest.param({"logit_bias": {"1": 200}}, 400, "logit_bias.1: Input should be less than", id="bias"),
    pytest.param({"logit_bias": {"a": 2}}, 400, "logit_bias.a", id="bias of no id"),
    pytest.param({"prompt": ["a"] * 200, "n": 10}, 400, "ask for 2000 answers, expected", id="too many at once"),
    pytest.param({"extra_body": {"cache_salt": ""}}, 400, "cache_salt", id="an empty salt"),
    pytest.param({"extra_body": {"tool": []}}, 400, "tool: not supported by this server; ", id="unknown field"),
    pytest.param({"seed": -2}, 400, "seed: ", id="seed"),
    pytest.param({"model": "other"}, 404, "no model 'other' is served here", id="unknown model"),
]  # fmt: skip


@pytest.mark.parametrize("change, status, message", WRONG)
def test_impossible_requests_are_refused_by_name(server, change, status, message):
    with pytest.raises(openai.APIStatusError, match=message) as caught:
        server.client().completions.create(**(GREEDY | {"prompt": PROMPT} | change))
    assert caught.value.status_code == status
    assert caught.value.body["message"].count("\n") == 0


def test_messages_that_the_template_refuses(server):
    with pytest.raises(openai.BadRequestError, match="no tools"):
        server.client().chat.completions.create(messages=[{"role": "tool", "content": "x"}], **GREEDY)


REFUSED = [
    ({"use_beam_search": True}, "use_beam_search: expected false; not supported otherwise"),
    ({"length_penalty": 0.5}, "length_penalty: expected 1 or 1.0; not supported otherwise"),
    ({"top_k": -2}, "top_k: Input should be greater than or equal to -1"),
    ({"response_format": {"type": "json_object"}}, 'response_format: expected {"type": "text"}; not supported'),
    ({"tools": [{"type": "function"}]}, "tools: expected []; not supported otherwise"),
    ({"tool_choice": "auto"}, 'tool_choice: expected "none"; not supported otherwise'),
    ({"store": True}, "store: expected false; not supported otherwise"),
    ({"store": 0}, "store: expected false"),
    ({"service_tier": "flex"}, 'service_tier: expected "auto" or "default"; not supported otherwise'),
    ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs: the server itself sets bos_token"),
    ({"chat_template_kwargs": {str(i): i for i in range(65)}}, "chat_template_kwargs: has 65 entries"),
    ({"chat_template_kwargs": {"a": json.loads("[" * 300 + "]" * 300)}}, "chat_template_kwargs.a.list.0.list.0: "),
    ({"reasoning_effort": "low"}, "reasoning_effort: not supported by this server; supported are model, "),
]


@pytest.mark.parametrize("fields, message", REFUSED, ids=lambda value: next(iter(value)) if type(value) is dict else "")
def test_other_values_of_these_fields_are_refused(server, fields, message):
    asked = GREEDY | {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    got = patient.post(f"{server.url}/v1/chat/completions", json=asked | fields)
    assert got.status_code == 400 and got.json()["error"]["message"].startswith(message)
    assert "tools, " not in got.json()["error"]["message"]


@pytest.mark.parametrize(
    "message, reason",
    [
        ({"content": None, "tool_calls": [{"id": "1"}]}, "messages.0.content: is null, expected a text; messages with"),
        ({"content": "x", "tool_calls": [{"id": "1"}]}, "messages.0.tool_calls: expected []; not supported otherwise"),
        ({"content": "x", "tool_call_id": "1"}, "messages.0.tool_call_id: not supported by this server"),
        ({"content": [{"type": "image_url", "image_url": {}}]}, "messages.0.content.0.type: Input should be 'text'"),
        ({"content": [{"type": "text", "text": "x", "cache_control": {}}]}, "messages.0.content.0.cache_control: not"),
        ({"content": 1}, "messages.0.content: expected a text or a list of parts with text"),
    ],
    ids=["null", "calls", "answer", "image", "other part", "number"],
)
def test_messages_with_tool_calls_are_refused(server, message, reason):
    asked = GREEDY | {"messages": [{"role": "assistant"} | message]}
    got = patient.post(f"{server.url}/v1/chat/completions", json=asked)
    assert got.status_code == 400 and got.json()["error"]["message"].startswith(reason)
    assert "supported are" not in got.json()["error"]["message"]


def test_top_logprobs_without_logprobs(server):
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.BadRequestError, match="top_logprobs needs logprobs"):
        server.client().chat.completions.create(messages=messages, top_logprobs=2, **GREEDY)


def test_a_body_without_json_and_an_unknown_path_are_refused(server):
    got = patient.post(f"{server.url}/v1/completions", content=b"{no", headers={"content-type": "application/json"})
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")
    assert got.json()["error"]["message"].startswith("the body")
    got = patient.get(f"{server.url}/v2")
    assert (got.status_code, got.json()["error"]["message"]) == (404, "GET /v2: Not Found")


@pytest.mark.parametrize("field", ["prompt", "stop"])
def test_text_of_no_utf8(server, field):
    body = json.dumps(GREEDY | {"prompt": PROMPT} | {field: "a\ud800"})  # escaped, as JSON may
    got = patient.post(f"{server.url}/v1/completions", content=body, headers={"content-type": "application/json"})
    assert got.status_code == 400 and "not UTF-8: U+D800 at character 1" in got.json()["error"]["message"]


@pytest.mark.parametrize("is_told", [True, False], ids=["told by its header", "found while it comes"])
def test_a_body_that_is_too_long(server, is_told):
    def pieces():
        for _ in range(40):
            yield b" " * (1 << 19)

    most = ServeLimits.of(512).body_bytes
    content = b" " * (20 << 20) if is_told else pieces()
    got = patient.post(f"{server.url}/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (got.status_code, got.json()["error"]["type"]) == (413, "invalid_request_error")
    assert got.json()["error"]["message"].endswith(f"{most}" + ("" if is_told else " bytes"))


@pytest.mark.parametrize("penalty", [1e-300, 1e-40])
def test_a_penalty_that_no_logit_survives_is_the_clients_mistake(server, penalty):
    body = GREEDY | {"prompt": PROMPT, "max_tokens": 5, "repetition_penalty": penalty}
    got = patient.post(f"{server.url}/v1/completions", json=body)
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "repetition_penalty" in got.json()["error"]["message"]
