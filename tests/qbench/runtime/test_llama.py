"""Logits against transformers, and every way of feeding the same tokens against every other."""

import pytest
import torch
from support.close import assert_close
from support.memory_source import MemorySource, llama_config, llama_weights
from support.transformers_llama import transformers_logits

from qbench.runtime import load_model

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
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
    "rope llama3": {"rope_scaling": LLAMA3},
    "rope llama3 as rope_parameters": {"rope_parameters": LLAMA3 | {"rope_theta": 20000.0}, "rope_theta": 7.0},
    "one layer": {"num_hidden_layers": 1},
}
LOGITS_ATOL = 1e-4  # the project's promise for float32 logits of order 1


def random_tokens(config: dict, batch: int, length: int) -> torch.Tensor:
    return torch.randint(config["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in CONFIGS.items()])
def test_logits_equal_transformers(changes):
    config = llama_config(**changes)
    weights = llama_weights(config)
    tokens = random_tokens(config, batch=2, length=200)
    model = load_model(MemorySource(config, weights))
    expected = transformers_logits(config, weights, tokens)
    assert expected.std() > 0.3, "logits this small would let a wrong model pass"
    assert_close(model(tokens), expected, atol=LOGITS_ATOL)
    assert_close(model(tokens, model.new_cache(batch=2, capacity=7)), expected, atol=LOGITS_ATOL)
