"""A body with very many mistakes gives few errors: each error costs more memory than its place in the body."""

import pytest
from pydantic import ValidationError

from qbench.serve.bodies import MOST_BIASES, MOST_MESSAGES, MOST_PROMPTS, ChatBody, CompletionBody

MANY = 20_000
UNKNOWN = {f"field{number}": 1 for number in range(MANY)}
ASKED = {"model": "m", "prompt": "x"}
SAID = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
WRONG = [
    pytest.param(CompletionBody, ASKED | UNKNOWN, id="unknown fields"),
    pytest.param(CompletionBody, ASKED | {"logit_bias": {str(id): 1e9 for id in range(MANY)}}, id="biases"),
    pytest.param(CompletionBody, ASKED | {"prompt": [[]] * MANY}, id="empty prompts"),
    pytest.param(CompletionBody, ASKED | {"prompt": [{}] * MANY}, id="prompts that are none"),
    pytest.param(CompletionBody, ASKED | {"prompt": [1, *["x"] * MANY]}, id="tokens that are none"),
    pytest.param(CompletionBody, ASKED | {"stop": [1] * MANY}, id="stop strings"),
    pytest.param(ChatBody, SAID | {"messages": SAID["messages"] * MANY}, id="messages"),
    pytest.param(ChatBody, SAID | {"messages": [{"role": "user", "content": [{}] * MANY}]}, id="parts"),
    pytest.param(CompletionBody, ASKED | {"stream_options": UNKNOWN}, id="unknown fields of an option"),
    pytest.param(ChatBody, {"model": "m", "messages": [UNKNOWN]}, id="unknown fields of a message"),
    pytest.param(
        ChatBody, SAID | {"messages": [{"role": "user", "content": [UNKNOWN]}]}, id="unknown fields of a part"
    ),
]


@pytest.mark.parametrize("kind, body", WRONG)
def test_many_mistakes_are_few_errors(kind, body):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() <= 8  # a prompt may be of four kinds, with two errors each


@pytest.mark.parametrize(
    "kind, change",
    [
        (CompletionBody, {"prompt": ["x"] * MOST_PROMPTS}),
        (CompletionBody, {"prompt": [1] * MANY}),
        (CompletionBody, {"prompt": "x", "logit_bias": {str(id): 1.0 for id in range(MOST_BIASES)}}),
        (ChatBody, SAID | {"messages": SAID["messages"] * MOST_MESSAGES}),
    ],
    ids=["prompts", "tokens", "biases", "messages"],
)
def test_the_allowed_number_of_items_is_taken(kind, change):
    assert kind.model_validate({"model": "m"} | change)
