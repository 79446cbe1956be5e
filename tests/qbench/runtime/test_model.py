"""Logits against transformers, and every way of feeding the same tokens against every other."""

import pytest
import torch
from support.architectures import llama3_scaling, random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from support.transformers_llama import transformers_logits

from qbench.runtime import load_model
from quant.errors import InputError

CONFIGS = {
    "gqa": {},
    "mha": {"num_key_value_heads": 4},
    "mqa": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "head_dim wider than hidden / heads": {"head_dim": 24},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True},
    "rope theta 500000": {"rope_theta": 500000.0},
    "rope linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "rope llama3": {"rope_scaling": llama3_scaling()},
    "rope llama3 as rope_parameters": {
        "rope_parameters": llama3_scaling() | {"rope_theta": 20000.0},
        "rope_theta": 7.0,
    },
    "rope yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}},
    "one layer": {"num_hidden_layers": 1},
}
LOGITS_ATOL = 1e-4  # the project's promise for float32 logits of order 1


def random_tokens(config: dict, batch: int, seq_len: int) -> torch.Tensor:
    return torch.randint(config["vocab_size"], (batch, seq_len), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in CONFIGS.items()])
def test_logits_equal_transformers(changes):
    config = small_config(**changes)
    weights = random_weights(config)
    tokens = random_tokens(config, batch=2, seq_len=200)
    model = load_model(ArraySource(config, weights))
    expected = transformers_logits(config, weights, tokens)
    assert expected.std() > 0.3, "logits this small would let a wrong model pass"
    assert_close(model(tokens), expected, atol=LOGITS_ATOL)
    assert_close(model(tokens, model.new_cache(batch=2, capacity=7)), expected, atol=LOGITS_ATOL)


@pytest.fixture(scope="module")
def gqa_model():
    config = small_config()
    return load_model(ArraySource(config, random_weights(config)))


@pytest.mark.parametrize(
    "chunks", [[1] * 40, [17, 1, 1, 20, 1], [1, 39], [39, 1]], ids=["decode", "mixed", "1+39", "39+1"]
)
def test_any_chunking_equals_one_prefill(gqa_model, chunks):
    tokens = random_tokens(small_config(), batch=3, seq_len=40)
    cache = gqa_model.new_cache(batch=3, capacity=4)
    logits = torch.cat([gqa_model(chunk, cache) for chunk in tokens.split(chunks, dim=1)], dim=1)
    assert cache.seq_len == 40
    assert_close(logits, gqa_model(tokens), atol=LOGITS_ATOL)


def test_sequences_of_a_batch_do_not_mix(gqa_model):
    tokens = random_tokens(small_config(), batch=4, seq_len=30)
    alone = torch.cat([gqa_model(row[None]) for row in tokens])
    assert_close(gqa_model(tokens), alone, atol=LOGITS_ATOL)


def test_no_position_sees_a_later_token(gqa_model):
    tokens = random_tokens(small_config(), batch=1, seq_len=30)
    changed = tokens.clone()
    changed[0, 20] = (changed[0, 20] + 1) % 160
    before, after = gqa_model(tokens), gqa_model(changed)
    assert_close(before[:, :20], after[:, :20])
    assert (before[:, 20:] - after[:, 20:]).abs().amax(-1).min() > LOGITS_ATOL


def test_last_only_is_the_last_row(gqa_model):
    tokens = random_tokens(small_config(), batch=2, seq_len=9)
    assert_close(gqa_model(tokens, last_only=True), gqa_model(tokens)[:, -1:], atol=LOGITS_ATOL)


def test_logits_are_float32_for_bf16_weights():
    config = small_config()
    weights = random_weights(config)
    model = load_model(ArraySource(config, weights, dict.fromkeys(weights, "bf16")))
    assert model(random_tokens(config, 1, 3)).dtype == torch.float32


@pytest.mark.parametrize(
    "tokens, message",
    [
        pytest.param(torch.tensor([[0, 160]]), "token ids from 0 to 160, expected 0 to 159", id="past the vocabulary"),
        pytest.param(torch.tensor([[-1, 5]]), "token ids from -1 to 5, expected 0 to 159", id="negative"),
        pytest.param(torch.zeros(1, 0, dtype=torch.int64), r"shape \[1, 0\]", id="empty"),
        pytest.param(torch.zeros(4, dtype=torch.int64), r"shape \[4\]", id="no batch axis"),
        pytest.param(torch.zeros(1, 257, dtype=torch.int64), "257 tokens, .* context holds 256", id="past the context"),
    ],
)
def test_bad_tokens_are_named(gqa_model, tokens, message):
    with pytest.raises(InputError, match=message):
        gqa_model(tokens)


def test_past_the_context_with_a_cache_is_an_error_and_leaves_the_cache(gqa_model):
    cache = gqa_model.new_cache()
    gqa_model(random_tokens(small_config(), 1, 256), cache, last_only=True)
    with pytest.raises(InputError, match="257 tokens"):
        gqa_model(torch.tensor([[1]]), cache)
    assert cache.seq_len == 256
