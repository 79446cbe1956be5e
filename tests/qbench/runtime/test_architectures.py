"""Logits of every architecture that runs against transformers, whole and token by token."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.runtime import load_model

YARN = {"type": "yarn", "original_max_position_embeddings": 32}
CONFIGS = {
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3 with biases": ("qwen3", {"attention_bias": True}),
    "qwen3moe": ("qwen3moe", {}),
    "qwen3moe, probabilities as they are": ("qwen3moe", {"norm_topk_prob": False}),
    "qwen3moe, one expert a token": ("qwen3moe", {"num_experts_per_tok": 1}),
    "qwen3moe, all experts": ("qwen3moe", {"num_experts_per_tok": 8}),
    "deepseek2": ("deepseek2", {}),
    "deepseek2, low-rank queries": ("deepseek2", {"q_lora_rank": 48}),
    "deepseek2, one shared expert, scaled": ("deepseek2", {"n_shared_experts": 1, "routed_scaling_factor": 2.5}),
    "deepseek2, two of three groups": (
        "deepseek2",
        {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "num_experts_per_tok": 3},
    ),
    "deepseek2, yarn": (
        "deepseek2",
        {"rope_scaling": {**YARN, "factor": 8.0, "mscale": 0.707, "mscale_all_dim": 0.707}},
    ),
    "deepseek2, yarn with two magnitudes": (
        "deepseek2",
        {"rope_scaling": {**YARN, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 0.5}},
    ),
    "qwen2, yarn": ("qwen2", {"rope_scaling": {**YARN, "factor": 4.0}}),
}
LOGITS_ATOL = 1e-4  # the project's promise for float32 logits of order 1


@pytest.mark.parametrize("kind, changes", [pytest.param(*each, id=name) for name, each in CONFIGS.items()])
def test_logits_equal_transformers(kind, changes, tmp_path):
    pytest.importorskip("transformers")
    from support.transformers_model import logits_of, transformers_model

    config = small_config(kind, **changes)
    weights = random_weights(config)
    tokens = torch.randint(config["vocab_size"], (2, 120), generator=torch.Generator().manual_seed(1))
    expected = logits_of(transformers_model(config, weights, tmp_path), tokens)
    model = load_model(ArraySource(config, weights))
    assert expected.std() > 0.3, "logits this small would let a wrong model pass"
    assert_close(model(tokens), expected, atol=LOGITS_ATOL)
    cache = model.new_cache(batch=2, capacity=7)
    decoded = torch.cat([model(chunk, cache) for chunk in tokens.split([100] + [1] * 20, dim=1)], dim=1)
    assert_close(decoded, expected, atol=LOGITS_ATOL)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "qwen3moe"])
def test_bfloat16_weights_stay_near_their_float32_logits(kind):
    config = small_config(kind, num_experts_per_tok=8)  # all experts: no choice for a rounding to flip
    weights = random_weights(config)
    formats = {name: "bf16" for name, weight in weights.items() if weight.ndim == 2}
    tokens = torch.randint(config["vocab_size"], (1, 64), generator=torch.Generator().manual_seed(1))
    source = ArraySource(config, weights, formats)
    exact = load_model(source, impl="reference")(tokens)
    error = (load_model(source)(tokens) - exact).pow(2).mean().sqrt() / exact.std()
    # Inputs and sums of 7 products in each of 2 layers and of the head are rounded to 8 bits; errors add as a walk.
    assert_close(error, 0, atol=2**-8 * (2 * (7 * 2 + 1)) ** 0.5)


def test_impls_name_every_expert():
    config = small_config("qwen3moe", num_hidden_layers=1)
    weights = random_weights(config)
    impls = load_model(ArraySource(config, weights)).impls
    linears = {name.removesuffix(".weight") for name, weight in weights.items() if weight.ndim == 2}
    assert set(impls) == linears - {"model.embed_tokens"}
