"""A real trained model: logits and greedy text equal transformers', text equals llama2.c's known story."""

import json

import pytest
import torch
from safetensors.numpy import load_file
from support.array_source import ArraySource
from support.close import assert_close
from support.data import STORIES260K, needs_stories
from support.transformers_llama import transformers_llama

from qbench.runtime import Sampling, Tokenizer, load_model
from qbench.runtime.text.generate import generate
from quant.source import TokenizerInfo

pytestmark = needs_stories

STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high."
)


@pytest.fixture(scope="module")
def stories():
    config = json.loads((STORIES260K / "config.json").read_text())
    weights = load_file(STORIES260K / "model.safetensors")
    return config, weights


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(TokenizerInfo((STORIES260K / "tokenizer.json").read_text(), 1, 2, add_bos=True))


def test_logits_equal_transformers(stories, tokenizer):
    config, weights = stories
    tokens = torch.tensor([tokenizer.encode(STORY)])
    with torch.inference_mode():
        expected = transformers_llama(config, weights)(tokens).logits
    model = load_model(ArraySource(config, weights))
    assert_close(model(tokens), expected, atol=1e-4)
    assert_close(model(tokens, model.new_cache()), expected, atol=1e-4)


def test_greedy_text_is_the_known_story(stories, tokenizer):
    config, weights = stories
    oracle = transformers_llama(config, weights)
    expected = oracle.generate(torch.tensor([[1]]), max_new_tokens=200, do_sample=False)[0, 1:].tolist()
    got = generate(load_model(ArraySource(config, weights)), [1], Sampling(), max_new_tokens=200)
    assert list(got.tokens) == expected
    assert tokenizer.decode(got.tokens).startswith(STORY)
