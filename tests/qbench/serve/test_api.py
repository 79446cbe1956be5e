"""OpenAI's own client against the server: its answers are the engine's."""

import json
import time

import openai
import pytest
from support import patient
from support.tiny_server import running, tiny_subject
from support.waits import WAIT_S

from qbench.run.options import RunOptions
from qbench.runtime import Sampling, generate, load_model
from qbench.runtime.engine import EngineOptions
from qbench.runtime.text.tokenizer import Tokenizer
from qbench.serve.bodies import ChatBody
from qbench.serve.server import open_served
from quant.kv.scheme import CONFIG_KEY

PROMPT = "Once upon a time"
GREEDY = {"model": "tiny", "temperature": 0}


@pytest.fixture(scope="module")
def subject():
    return tiny_subject()


def alone(subject, text: str, sampling: Sampling, count: int) -> tuple[list[int], str]:
    """Tokens and text of the runtime by itself."""
    tokenizer = Tokenizer(subject.source.tokenizer)
    prompt = tokenizer.encode(text)
    tokens = generate(load_model(subject.source, RunOptions(compute="exact")), prompt, sampling, count).tokens
    stream = tokenizer.stream(prompt)
    return list(tokens), "".join([*(stream.push(token) for token in tokens), stream.flush()])


def test_the_model_is_listed(server):
    client = server.client()
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "qbench"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_completion_matches_the_runtime(server, subject, stream):
    tokens, text = alone(subject, PROMPT, Sampling(), 24)
    asked = GREEDY | {"prompt": PROMPT, "max_tokens": 24, "stream": stream}
    if not stream:
        got = server.client().completions.create(**asked)
        assert (got.choices[0].text, got.choices[0].finish_reason) == (text, "length")
        assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (len(PROMPT) + 1, len(tokens))
        return
    chunks = list(server.client().completions.create(**asked, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.total_tokens == len(PROMPT) + 1 + len(tokens)
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("kv, policy", [("kv-kivi-4", "full"), ("kv-kivi-2", "h2o:190"), ("kv-int4-kc", "full")])
def test_kv_formats_that_encode_tokens_together(kv, policy):
    subject = tiny_subject(policy=policy, changes={"head_dim": 32, CONFIG_KEY: {"format": kv}})
    prompt = PROMPT * 14
    tokens = Tokenizer(subject.source.tokenizer).encode(prompt)
    assert len(tokens) > 190
    expected = generate(load_model(subject.source, subject.options), tokens, Sampling(), 24)
    with running(subject, EngineOptions(memory_bytes=1 << 22, max_batch=2)) as server:
        assert server.served.max_seq_len == 512
        asked = GREEDY | {"prompt": [tokens], "max_tokens": 24, "logprobs": 0}
        choice = server.client().completions.create(**asked).choices[0]
    stream = Tokenizer(subject.source.tokenizer).stream(tokens)
    assert choice.text == "".join([*(stream.push(token) for token in expected.tokens), stream.flush()])


def test_biases_and_penalties_change_the_answer(server, subject):
    asked = GREEDY | {"prompt": PROMPT, "max_tokens": 6, "logprobs": 0}
    tokenizer = Tokenizer(subject.source.tokenizer)
    token = tokenizer.encode("q")[-1]
    forced = server.client().completions.create(**asked, logit_bias={str(token): 100})
    assert forced.choices[0].text == 6 * "q"
    both = server.client().completions.create(**asked, logit_bias={str(token): 1.9}, presence_penalty=2)
    assert both.choices[0].text.count("q") <= 1
    once = server.client().completions.create(**asked, logit_bias={str(token): 100}, frequency_penalty=2)
    assert once.choices[0].text == 6 * "q", "a penalty is less than a bias of 100"


def test_a_seed_fixes_every_choice_and_no_two_are_equal(server, subject):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "n": 3, "seed": 5, "temperature": 1.3}
    one, other = (server.client().completions.create(**asked) for _ in range(2))
    texts = [choice.text for choice in one.choices]
    assert texts == [choice.text for choice in other.choices] and len(set(texts)) == 3
    assert texts == [alone(subject, PROMPT, Sampling(1.3, seed=seed), 12)[1] for seed in (5, 6, 7)]
    assert one.usage.prompt_tokens == len(PROMPT) + 1


def test_without_a_seed_every_answer_is_drawn_again(server):
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12}
    assert len({server.client().completions.create(**asked).choices[0].text for _ in range(3)}) == 3


def test_prompts_come_as_texts_or_token_ids(server, subject):
    ids = Tokenizer(subject.source.tokenizer).encode(PROMPT)
    asked = GREEDY | {"max_tokens": 6}
    create = server.client().completions.create
    one = create(prompt=PROMPT, **asked).choices[0].text
    assert create(prompt=ids, **asked).choices[0].text == one
    for many in ([PROMPT, PROMPT], [ids, ids]):
        assert [choice.text for choice in create(prompt=many, **asked).choices] == [one, one]


def test_text_ends_before_a_stop_string(server, subject):
    text = alone(subject, PROMPT, Sampling(), 24)[1]
    stop = text[9:11]
    got = server.client().completions.create(prompt=PROMPT, max_tokens=24, stop=[stop, "never"], **GREEDY)
    assert (got.choices[0].text, got.choices[0].finish_reason) == (text[: text.index(stop)], "stop")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_log_probabilities_of_completions(server, subject, stream):
    tokens, text = alone(subject, PROMPT, Sampling(), 5)
    got = server.client().completions.create(prompt=PROMPT, max_tokens=5, logprobs=3, stream=stream, **GREEDY)
    parts = [chunk.choices[0].logprobs for chunk in got] if stream else [got.choices[0].logprobs]
    parts = [part for part in parts if part is not None]
    scores = [score for part in parts for score in part.token_logprobs]
    tops = [top for part in parts for top in part.top_logprobs]
    assert len(scores) == len(tokens)
    assert scores == pytest.approx([max(top.values()) for top in tops])  # greedy: the likeliest
    assert all(len(top) <= 3 for top in tops)
    names = [name for part in parts for name in part.tokens]
    assert "".join(names) == text or stream  # a chunk cannot know that the last character remains incomplete
    assert [offset for part in parts for offset in part.text_offset] == [
        sum(map(len, names[:index])) for index in range(len(names))
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_is_laid_out_by_the_models_template(server, subject, stream):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    text = alone(subject, "[system] Be kind.\n[user] Hello\n[assistant] ", Sampling(), 16)[1]
    asked = GREEDY | {"messages": messages, "max_completion_tokens": 16, "stream": stream}
    got = server.client().chat.completions.create(**asked)
    if not stream:
        message = got.choices[0].message
        assert (message.role, message.content, got.choices[0].finish_reason) == ("assistant", text, "length")
        return
    deltas = [chunk.choices[0].delta for chunk in got]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == text


def test_parts_of_a_message_are_one_text(server):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    create, asked = server.client().chat.completions.create, GREEDY | {"max_tokens": 6}
    whole = create(messages=[{"role": "user", "content": "Hello"}], **asked)
    assert create(messages=[{"role": "user", "content": parts}], **asked).choices[0] == whole.choices[0]


def test_log_probabilities_of_chats(server):
    messages = [{"role": "user", "content": "Hello"}]
    asked = GREEDY | {"messages": messages, "max_tokens": 4, "logprobs": True, "top_logprobs": 2}
    scored = server.client().chat.completions.create(**asked).choices[0].logprobs.content
    assert len(scored) == 4
    for each in scored:
        assert each.logprob == max(top.logprob for top in each.top_logprobs)
        assert bytes(each.bytes).decode(errors="replace") == each.token


def test_a_chat_without_a_limit_goes_to_the_end_of_the_context(subject):
    with running(tiny_subject(context=64), EngineOptions(num_pages=128)) as server:
        messages = [{"role": "user", "content": "Hello"}]
        got = server.client().chat.completions.create(messages=messages, **GREEDY)
        assert got.usage.total_tokens == 64 and got.choices[0].finish_reason == "length"


def test_without_a_template_only_completions_are_served():
    with running(tiny_subject(template=None), EngineOptions(num_pages=32)) as server:
        with pytest.raises(openai.BadRequestError, match="has no chat template"):
            server.client().chat.completions.create(messages=[{"role": "user", "content": "x"}], **GREEDY)
        assert server.client().completions.create(prompt=PROMPT, max_tokens=2, **GREEDY).usage.completion_tokens == 2


def test_a_given_template_replaces_a_missing_one(subject):
    text = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    served = open_served(tiny_subject(template=None), EngineOptions(num_pages=32), chat_template=text)
    try:
        (request,) = served.chat_requests(ChatBody(model="tiny", messages=[{"role": "user", "content": "Hi"}]))
        assert list(request.tokens) == served.tokenizer.encode("<Hi>")
    finally:
        served.template.close()


def test_an_unreadable_template_prevents_only_chats():
    with running(tiny_subject(template="{% for %}"), EngineOptions(num_pages=32)) as server:
        with pytest.raises(openai.BadRequestError, match="template cannot be read"):
            server.client().chat.completions.create(messages=[{"role": "user", "content": "x"}], **GREEDY)
        assert server.client().completions.create(prompt=PROMPT, max_tokens=2, **GREEDY).usage.completion_tokens == 2


NEUTRAL = [
    {"response_format": {"type": "text"}, "modalities": ["text"]},
    {"tools": [], "tool_choice": "none", "parallel_tool_calls": True, "functions": [], "function_call": "none"},
    {"store": False, "metadata": {}, "service_tier": "auto"},
    {"service_tier": "default", "parallel_tool_calls": False},
    {"tools": None, "seed": None, "reasoning_effort": None, "prediction": None},
    {"seed": -1, "ignore_eos": False, "chat_template_kwargs": {}},
    {"top_k": -1, "min_tokens": 0, "stop_token_ids": [], "length_penalty": 1.0, "use_beam_search": False},
    {"skip_special_tokens": True, "spaces_between_special_tokens": True, "include_stop_str_in_output": False},
    {"length_penalty": 1, "spaces_between_special_tokens": False},
]


@pytest.mark.parametrize("fields", NEUTRAL, ids=lambda fields: next(iter(fields)))
def test_fields_that_change_nothing_are_accepted(server, fields):
    asked = GREEDY | {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    plain = patient.post(f"{server.url}/v1/chat/completions", json=asked).json()["choices"]
    got = patient.post(f"{server.url}/v1/chat/completions", json=asked | fields)
    assert got.status_code == 200 and got.json()["choices"] == plain


def test_load_generators_ask_for_a_least_number_of_tokens(server):
    """genai-perf and aiperf send it together with ignore_eos."""
    asked = GREEDY | {"prompt": PROMPT, "max_tokens": 4, "min_tokens": 4}
    got = patient.post(f"{server.url}/v1/completions", json=asked | {"ignore_eos": True})
    assert got.json()["usage"]["completion_tokens"] == 4
    for others in ({}, {"ignore_eos": True, "stop": "x"}):
        got = patient.post(f"{server.url}/v1/completions", json=asked | others)
        assert got.status_code == 400
        assert got.json()["error"]["message"].startswith("min_tokens is 4, expected 0, or ignore_eos without stop")


def test_an_answer_of_another_server_in_the_history(server):
    empty = {"refusal": None, "tool_calls": [], "annotations": [], "audio": None, "function_call": None}
    said = {"role": "assistant", "content": "A"}
    asked = GREEDY | {"max_tokens": 4}
    plain = [{"role": "user", "content": "Hi"}, said, {"role": "user", "content": "B"}]
    long = [plain[0], said | empty, plain[2]]
    one, other = (
        patient.post(f"{server.url}/v1/chat/completions", json=asked | {"messages": messages})
        for messages in (plain, long)
    )
    assert other.status_code == 200 and one.json()["choices"] == other.json()["choices"]


def test_variables_of_a_request_reach_the_chat_template():
    text = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is false %}<quick>{% endif %}"
    served = open_served(tiny_subject(template=text), EngineOptions(num_pages=32))
    try:
        said = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
        for fields, expected in (({}, "Hi"), ({"chat_template_kwargs": {"enable_thinking": False}}, "Hi<quick>")):
            (request,) = served.chat_requests(ChatBody(**said, **fields))
            assert list(request.tokens) == served.tokenizer.encode(expected)
    finally:
        served.template.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_ignore_eos_goes_on_to_the_limit_of_tokens(subject, stream):
    tokens, text = alone(subject, PROMPT, Sampling(), 24)
    end = next(place for place in range(3, 24) if tokens[place] not in tokens[:place])
    with running(tiny_subject(changes={"eos_token_id": tokens[end]}), EngineOptions(num_pages=64)) as server:
        asked = GREEDY | {"prompt": PROMPT, "max_tokens": 24}
        stopped = server.client().completions.create(**asked)
        assert (stopped.usage.completion_tokens, stopped.choices[0].finish_reason) == (end, "stop")
        if stream:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        got = server.client().completions.create(**asked, extra_body={"ignore_eos": True})
        chunks = list(got) if stream else [got]
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == text
        assert chunks[-1].usage.completion_tokens == 24
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_the_usage_so_far_in_every_chunk(server, path):
    said = {"prompt": PROMPT} if path == "completions" else {"messages": [{"role": "user", "content": "Hello"}]}
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = GREEDY | said | {"max_tokens": 6, "n": 2, "stream": True, "stream_options": options}
    lines = patient.post(f"{server.url}/v1/{path}", json=asked).text.strip().splitlines()
    usages = [json.loads(line.removeprefix("data: "))["usage"] for line in lines if line and "[DONE]" not in line]
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts) and counts[-1] == counts[-2] == 12 and len(set(counts)) > 2
    assert len({usage["prompt_tokens"] for usage in usages}) == 1


def test_a_temperature_next_to_nothing_is_greedy(server):
    client, asked = server.client(), {"model": "tiny", "prompt": PROMPT, "max_tokens": 5}
    greedy = client.completions.create(temperature=0, **asked)
    assert client.completions.create(temperature=1e-310, extra_body={"top_k": 5}, **asked).choices == greedy.choices


def test_a_changed_document_is_computed_again():
    with running(tiny_subject(), EngineOptions(num_pages=128)) as server:

        def hits(salt: str | None) -> int:
            """Tokens of the prompt that were found computed."""
            before = server.stats
            asked = GREEDY | {"prompt": "A document that is longer than a page. " * 2, "max_tokens": 1}
            server.client().completions.create(**asked, extra_body={"cache_salt": salt} if salt else {})
            end = time.monotonic() + WAIT_S
            while time.monotonic() < end:  # the engine counts when it has answered
                if server.stats.prefix_lookup_tokens > before.prefix_lookup_tokens and not server.stats.running:
                    return server.stats.prefix_hit_tokens - before.prefix_hit_tokens
                time.sleep(0.01)
            raise AssertionError("the engine counted nothing")

        def forget(**salt: str) -> None:
            assert patient.delete(f"{server.url}/v1/prefixes", params=salt).status_code == 204

        assert [hits(None), hits("v1"), hits("v2")] == [0, 0, 0]
        shared = hits("v1")
        assert shared >= 16 and [hits(None), hits("v2")] == [shared, shared]
        forget(cache_salt="v1")
        assert [hits(None), hits("v1"), hits("v2")] == [shared, 0, shared]
        forget()
        assert [hits(None), hits("v1"), hits("v2")] == [0, shared, shared]


def test_the_key_is_asked_of_all_but_health():
    with running(tiny_subject(), EngineOptions(num_pages=32), api_key="secret") as server:
        with pytest.raises(openai.AuthenticationError, match="API key"):
            server.client(api_key="wrong").models.list()
        assert patient.delete(f"{server.url}/v1/prefixes").status_code == 401
        assert server.client(api_key="secret").models.list().data
        assert patient.get(f"{server.url}/health").json() == {"status": "ok"}
        for path in ("/metrics", "/docs", "/openapi.json", "/v2"):
            got = patient.get(f"{server.url}{path}")
            assert (got.status_code, got.json()["error"]["type"]) == (401, "authentication_error")
            allowed = patient.get(f"{server.url}{path}", headers={"Authorization": "Bearer secret"})
            assert allowed.status_code == (404 if path == "/v2" else 200)
