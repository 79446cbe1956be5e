"""Logits of every architecture that runs against transformers, whole and token by token."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.close import assert_close

from qbench.runtime import load_model
from qbench.sources import open_source
from quant.errors import InputError
from quant.extension import has_cpu_kernels

YARN = {"type": "yarn", "original_max_position_embeddings": 32}
WINDOWS = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
}
LONG = {"rope_scaling": LONGROPE, "original_max_position_embeddings": 60}
CONFIGS = {
    "mistral": ("mistral", {}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "mistral, a window of one": ("mistral", {"sliding_window": 1}),
    "qwen2, a window from layer 1": ("qwen2", WINDOWS),
    "mixtral": ("mixtral", {}),
    "mixtral, one expert a token": ("mixtral", {"num_experts_per_tok": 1}),
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
    "deepseek3": ("deepseek3", {}),
    "deepseek3, plain queries, one group": ("deepseek3", {"q_lora_rank": None, "n_group": 1, "topk_group": 1}),
    "deepseek3, scores as they are": ("deepseek3", {"norm_topk_prob": False}),
    "deepseek3, all groups": ("deepseek3", {"topk_group": 4, "num_experts_per_tok": 5}),
    "deepseek3, yarn": (
        "deepseek3",
        {"rope_scaling": {**YARN, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0}},
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
CONFIGS |= {
    "gemma2": ("gemma2", {}),
    "gemma2, another scale": ("gemma2", {"query_pre_attn_scalar": 40}),
    "gemma2, no caps": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma2, one head for all": ("gemma2", {"num_key_value_heads": 1}),
    "gemma2, layers in another order": (
        "gemma2",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ),
    "gemma3": ("gemma3", {}),
    "gemma3, a scaled rotation in the global layers": (
        "gemma3",
        {"num_hidden_layers": 3, "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ),
    "phi3": ("phi3", {}),
    "phi3, a window": ("phi3", {"sliding_window": 30}),
    "phi3, half of a head turned": ("phi3", {"partial_rotary_factor": 0.5}),
    "phi3, longrope within its first context": ("phi3", {**LONG, "original_max_position_embeddings": 128}),
    "gpt2": ("gpt2", {}),
    "gpt2, the usual width": ("gpt2", {"n_inner": None}),
    "gpt2, a head of its own": ("gpt2", {"tie_word_embeddings": False}),
    "opt": ("opt", {}),
    "opt, gelu": ("opt", {"activation_function": "gelu"}),
    "bloom": ("bloom", {}),
    "bloom, a power of two of heads": ("bloom", {"n_head": 4}),
    "llama, relu": ("llama", {"hidden_act": "relu"}),
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
    assert expected.std() > 0.3, "logits this small would let a wrong model pass"
    for impl in ("auto", "reference"):
        model = load_model(ArraySource(config, weights), impl=impl)
        assert_close(model(tokens), expected, atol=LOGITS_ATOL)
        cache = model.new_cache(batch=2, capacity=7)
        decoded = torch.cat([model(chunk, cache) for chunk in tokens.split([100] + [1] * 20, dim=1)], dim=1)
        assert_close(decoded, expected, atol=LOGITS_ATOL)


def test_longrope_of_a_text_beyond_its_first_context(tmp_path):
    """All at once, then token by token; a text that outgrows the context while it is cached is refused."""
    pytest.importorskip("transformers")
    from support.transformers_model import logits_of, transformers_model

    config = small_config("phi3", **LONG)
    weights = random_weights(config)
    tokens = torch.randint(config["vocab_size"], (2, 100), generator=torch.Generator().manual_seed(1))
    expected = logits_of(transformers_model(config, weights, tmp_path), tokens)
    model = load_model(ArraySource(config, weights))
    cache = model.new_cache(batch=2, capacity=7)
    decoded = torch.cat([model(chunk, cache) for chunk in tokens.split([80] + [1] * 20, dim=1)], dim=1)
    assert_close(decoded, expected, atol=LOGITS_ATOL)
    cache = model.new_cache(batch=2)
    model(tokens[:, :50], cache)
    with pytest.raises(InputError, match="rotation changes past 60 tokens, and 50 of 61 are cached"):
        model(tokens[:, 50:61], cache)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3", "phi3", "gpt2", "opt", "bloom"])
def test_a_checkpoint_that_transformers_saved(kind, tmp_path):
    pytest.importorskip("transformers")
    from support.transformers_model import logits_of, transformers_model

    config = small_config(kind)
    (tmp_path / "ours").mkdir()
    theirs = transformers_model(config, random_weights(config), tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    tokens = torch.randint(config["vocab_size"], (1, 60), generator=torch.Generator().manual_seed(1))
    model = load_model(open_source(str(tmp_path / "theirs")))
    assert_close(model(tokens), logits_of(theirs, tokens), atol=LOGITS_ATOL)


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


@pytest.mark.parametrize("kind, layers", [("gemma2", 3), ("bloom", 2), ("mistral", 0), ("gpt2", 0)])
def test_impls_name_attention_that_runs_in_torch(kind, layers):
    config = small_config(kind)
    weights = random_weights(config)
    impls = list(load_model(ArraySource(config, weights)).impls.values())
    assert impls.count("torch-attention") == (layers if has_cpu_kernels() else 0)
    assert "torch-attention" not in load_model(ArraySource(config, weights), impl="reference").impls.values()


@pytest.mark.parametrize("kind", ["gemma2", "gemma3", "phi3", "gpt2", "opt", "bloom", "mistral"])
@pytest.mark.parametrize("cache", ["none", "static", "paged"])
def test_every_cache_gives_the_same_logits(kind, cache):
    """Also of a batch whose second row is padded on the right."""
    config = small_config(kind)
    model = load_model(ArraySource(config, random_weights(config)))
    tokens = torch.randint(config["vocab_size"], (2, 60), generator=torch.Generator().manual_seed(1))
    expected = model(tokens)
    held = model.new_cache(2, 64, spec=spec_of(cache))
    decoded = torch.cat([model(chunk, held) for chunk in tokens.split([50] + [1] * 10, dim=1)], dim=1)
    assert_close(decoded, expected, atol=LOGITS_ATOL)
    last = model(tokens, model.new_cache(2, 64, spec=spec_of(cache)), num_valid=[60, 31], last_only=True)
    assert_close(last[:, 0], torch.stack([expected[0, 59], expected[1, 30]]), atol=LOGITS_ATOL)
