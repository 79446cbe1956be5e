"""The reference decoder against transformers; a wrong constant in either must be found."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from support.logit_bounds import float32_bound

from qbench.runtime.reference_decoder import FAMILIES, ReferenceDecoder
from quant.errors import InputError
from quant.rotation import RotatedSource

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 8.0}
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
}
CONFIGS = {
    "llama": ("llama", {}),
    "llama, a key for each head": ("llama", {"num_key_value_heads": 4}),
    "llama, one key for all heads": ("llama", {"num_key_value_heads": 1}),
    "llama, tied head": ("llama", {"tie_word_embeddings": True}),
    "llama, wide heads": ("llama", {"head_dim": 24}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, linear RoPE": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama, llama3 RoPE": ("llama", {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}}),
    "llama, YaRN": ("llama", {"rope_scaling": {**YARN, "original_max_position_embeddings": 32}}),
    "mistral, window": ("mistral", {}),
    "mistral, window of one token": ("mistral", {"sliding_window": 1}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2, window from layer 1": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {}),
    "qwen3, biases": ("qwen3", {"attention_bias": True}),
    "phi3, half of a head rotated": ("phi3", {"partial_rotary_factor": 0.5}),
    "phi3, short LongRoPE": ("phi3", {"rope_scaling": LONGROPE, "original_max_position_embeddings": 128}),
    "phi3, long LongRoPE": ("phi3", {"rope_scaling": LONGROPE, "original_max_position_embeddings": 60}),
}
TOKENS = torch.randint(160, (2, 120), generator=torch.Generator().manual_seed(1))


def decoder(config: dict, dtype: torch.dtype = torch.float64) -> ReferenceDecoder:
    return ReferenceDecoder(ArraySource(config, random_weights(config)), dtype)


def transformers_logits(config: dict, path) -> torch.Tensor:
    """[B, T, V]; transformers normalizes and rotates in float32 whatever the dtype of a model is."""
    pytest.importorskip("transformers")
    from support.transformers_model import logits_of, transformers_model

    return logits_of(transformers_model(config, random_weights(config), path), TOKENS)


@pytest.mark.parametrize("kind, changes", [pytest.param(*each, id=name) for name, each in CONFIGS.items()])
def test_logits_equal_transformers(kind, changes, tmp_path):
    config = small_config(kind, **changes)
    theirs = transformers_logits(config, tmp_path)
    assert theirs.std() > 0.3, "logits this small would let a wrong model pass"
    for dtype in (torch.float64, torch.float32):
        model = decoder(config, dtype)
        logits = model(TOKENS)
        assert logits.dtype == dtype
        assert_close(logits, theirs, atol=float32_bound(model.config, theirs))


WRONG = {
    "norm epsilon": ("llama", {"rms_norm_eps": 2e-5}),
    "RoPE theta": ("llama", {"rope_theta": 10100.0}),
    "RoPE factor": ("llama", {"rope_scaling": {"type": "linear", "factor": 1.01}}),
    "window": ("mistral", {"sliding_window": 25}),
    "layers with a window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 119, "max_window_layers": 1},
    ),
    "rotated share": ("phi3", {"partial_rotary_factor": 0.75}),
}


@pytest.mark.parametrize("kind, changes", [pytest.param(*each, id=name) for name, each in WRONG.items()])
def test_a_wrong_constant_is_found(kind, changes, tmp_path):
    """Each change is small: the bound of the comparison must be smaller."""
    right = small_config(kind)
    theirs = transformers_logits(right, tmp_path)
    model = ReferenceDecoder(ArraySource(right | changes, random_weights(right)))
    with pytest.raises(AssertionError, match="elements off"):
        assert_close(model(TOKENS), theirs, atol=float32_bound(model.config, theirs))


def test_no_position_sees_a_later_token():
    model, changed = decoder(small_config()), TOKENS.clone()
    changed[:, 70] = (changed[:, 70] + 1) % 160
    before, after = model(TOKENS), model(changed)
    assert_close(before[:, :70], after[:, :70])
    assert (before[:, 70:] - after[:, 70:]).abs().amax(-1).min() > float32_bound(model.config, before)


@pytest.mark.parametrize("kind", ["mixtral", "gemma2", "deepseek2", "gpt2"])
def test_other_families_are_refused_with_the_covered_ones(kind):
    config = small_config(kind)
    with pytest.raises(NotImplementedError, match=f"covers {', '.join(FAMILIES)}; got {config['architectures'][0]}"):
        ReferenceDecoder(ArraySource(config, {}))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_act": "relu"}, "activation silu; got relu"),
        ({"attn_logit_softcapping": 2.0}, "without soft caps"),
        ({"query_pre_attn_scalar": 40}, "of scale 1 / sqrt"),
    ],
    ids=["relu", "capped scores", "another scale"],
)
def test_other_equations_are_refused(changes, message):
    with pytest.raises(NotImplementedError, match=message):
        ReferenceDecoder(ArraySource(small_config(**changes), {}))


def test_weight_formats_that_round_activations_are_refused():
    config = small_config()
    weights = random_weights(config)
    with pytest.raises(NotImplementedError, match="w8a8, which rounds activations too"):
        ReferenceDecoder(ArraySource(config, weights, {"model.layers.0.self_attn.q_proj.weight": "w8a8"}))


@pytest.mark.parametrize(
    "tokens, message",
    [
        (torch.tensor([[0, 160]]), "token ids from 0 to 160, expected 0 to 159"),
        (torch.tensor([[-1, 5]]), "token ids from -1 to 5"),
        (torch.zeros(1, 0, dtype=torch.int64), r"shape \[1, 0\]"),
        (torch.zeros(4, dtype=torch.int64), r"shape \[4\]"),
        (torch.zeros(1, 257, dtype=torch.int64), "257 tokens, but the model's context holds 256"),
    ],
    ids=["past the vocabulary", "negative", "empty", "no batch axis", "past the context"],
)
def test_bad_tokens_are_named(tokens, message):
    with pytest.raises(InputError, match=message):
        decoder(small_config())(tokens)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_rotations_are_exact_in_real_arithmetic(kind):
    """In float64, with weights that were rounded to float32 when they were turned: nothing else may differ."""
    config = small_config(kind)
    source = ArraySource(config, random_weights(config))
    expected = ReferenceDecoder(source)(TOKENS)
    for online in ((), ("down_proj",), ("keys",), ("down_proj", "keys")):
        error = (ReferenceDecoder(RotatedSource(source, online))(TOKENS) - expected).abs().max()
        assert error < 2**-24 * 64 * expected.abs().max(), online
