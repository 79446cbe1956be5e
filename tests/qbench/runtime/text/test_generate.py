"""The decode loop: its inputs, its stops, its stream."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.runtime import Sampling, load_model
from qbench.runtime.text.generate import generate
from quant.errors import InputError

PROMPT = [5, 80, 3, 3, 159]


@pytest.fixture(scope="module")
def model():
    config = small_config(max_position_embeddings=64)
    return load_model(ArraySource(config, random_weights(config)))


def recomputed(model, prompt: list[int], count: int) -> list[int]:
    """Greedy without a cache: the whole sequence again for every token."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_greedy_equals_recomputing_every_step(model):
    got = generate(model, PROMPT, Sampling(), max_new_tokens=20)
    assert list(got.tokens) == recomputed(model, PROMPT, 20)
    assert got.stop_reason == "length"
    assert got.ttft_ms > 0 and got.tpot_ms > 0


def test_tokens_stream_in_order(model):
    streamed = []
    got = generate(model, PROMPT, Sampling(temperature=1, seed=1), 20, on_token=streamed.append)
    assert streamed == list(got.tokens)


def test_stops_at_a_stop_token_and_leaves_it_out(model):
    free = generate(model, PROMPT, Sampling(), max_new_tokens=20).tokens
    stop = free[6]
    got = generate(model, PROMPT, Sampling(), max_new_tokens=20, stop_ids=[stop])
    assert got.tokens == free[: free.index(stop)]
    assert got.stop_reason == "eos"


def test_the_config_names_the_stop_token(model):
    stop = generate(model, PROMPT, Sampling(), max_new_tokens=1).tokens[0]
    config = small_config(max_position_embeddings=64, eos_token_id=[stop, 1])
    stopping = load_model(ArraySource(config, random_weights(config)))
    got = generate(stopping, PROMPT, Sampling(), max_new_tokens=5)
    assert (got.tokens, got.stop_reason, got.tpot_ms) == ((), "eos", None)
    assert generate(stopping, PROMPT, Sampling(), max_new_tokens=5, stop_ids=()).stop_reason == "length"


def test_a_word_from_on_token_ends_the_text_with_that_token(model):
    free = generate(model, PROMPT, Sampling(), max_new_tokens=20).tokens
    got = generate(model, PROMPT, Sampling(), 20, on_token=lambda token: token == free[6])
    assert got.tokens == free[: free.index(free[6]) + 1]
    assert got.stop_reason == "stop"


def test_the_penalty_sees_prompt_and_text(model):
    got = generate(model, PROMPT, Sampling(repetition_penalty=1e6), max_new_tokens=30).tokens
    assert len({*got, *PROMPT}) == 30 + len(set(PROMPT)), "no token comes twice under so high a penalty"


def test_log_probabilities_match_the_model(model):
    got = generate(model, PROMPT, Sampling(temperature=2, seed=1), max_new_tokens=6, logprobs=2)
    logits = model(torch.tensor([[*PROMPT, *got.tokens]]))[0, len(PROMPT) - 1 : -1].double().log_softmax(-1)
    # float32 logits through a cache and without one differ in the order of 64 products' sums
    tolerance = 64 * 2**-24 * float(logits.abs().max())
    for scores, token, row in zip(got.log_probabilities, got.tokens, logits, strict=True):
        assert abs(scores.chosen - float(row[token])) < tolerance
        assert [other for other, _ in scores.top] == row.topk(2).indices.tolist()


def test_a_seed_fixes_the_text(model):
    def text(seed: int) -> tuple[int, ...]:
        return generate(model, PROMPT, Sampling(temperature=1, top_p=0.9, seed=seed), 30).tokens

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_the_context_can_be_filled_to_the_last_token(model):
    assert len(generate(model, PROMPT, Sampling(), max_new_tokens=59).tokens) == 59


@pytest.mark.parametrize(
    "prompt, max_new_tokens, message",
    [
        pytest.param([], 5, "the prompt is empty", id="empty prompt"),
        pytest.param(PROMPT, 0, "max_new_tokens is 0", id="nothing asked"),
        pytest.param(PROMPT, 60, "context of 64; ask for at most 59", id="too many asked"),
        pytest.param([1] * 64, 1, "shorten the prompt", id="no room left"),
        pytest.param([160], 1, "expected 0 to 159", id="not a token"),
    ],
)
def test_bad_requests_are_named(model, prompt, max_new_tokens, message):
    with pytest.raises(InputError, match=message):
        generate(model, prompt, Sampling(), max_new_tokens)
