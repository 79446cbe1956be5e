"""A small config of every architecture, and random weights for it, each norm and bias unlike its neighbours."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.models import ModelConfig, expected_tensors

_COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 160,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_QWEN3_MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
_DEEPSEEK = {
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
}

_DEEPSEEK_V3 = _DEEPSEEK | {
    "q_lora_rank": 48,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
}
_MIXTRAL = {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": None}
_GEMMA = {
    "head_dim": 24,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 24,
    "sliding_window": 24,
    "tie_word_embeddings": True,
    "num_hidden_layers": 3,
}
_GPT2 = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "n_inner": 96,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 160,
    "tie_word_embeddings": True,
}
_OPT = {
    "hidden_size": 64,
    "ffn_dim": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "vocab_size": 160,
    "word_embed_proj_dim": 64,
    "activation_function": "relu",
    "tie_word_embeddings": True,
}
_BLOOM = {
    "hidden_size": 96,
    "n_layer": 2,
    "n_head": 6,  # no power of two: its slopes come from two series
    "seq_length": 256,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 160,
    "tie_word_embeddings": True,
}

# name -> (class in `architectures`, model_type, its config's keys beyond the common ones)
_KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "llama", {"attention_bias": False, "mlp_bias": False}),
    "mistral": ("MistralForCausalLM", "mistral", {"sliding_window": 24}),
    "mixtral": ("MixtralForCausalLM", "mixtral", _MIXTRAL),
    "gemma2": (
        "Gemma2ForCausalLM",
        "gemma2",
        {**_GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text", {**_GEMMA, "num_hidden_layers": 7, "rope_local_base_freq": 100.0}),
    "phi3": ("Phi3ForCausalLM", "phi3", {"pad_token_id": 0}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {"use_sliding_window": False}),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {"head_dim": 24}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe", {"head_dim": 24, **_QWEN3_MOE}),
    "deepseek2": ("DeepseekV2ForCausalLM", "deepseek_v2", _DEEPSEEK),
    "deepseek3": ("DeepseekV3ForCausalLM", "deepseek_v3", _DEEPSEEK_V3),
}
# The same, of those whose configs speak another language: these are whole
_OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "gpt2", _GPT2),
    "opt": ("OPTForCausalLM", "opt", _OPT),
    "bloom": ("BloomForCausalLM", "bloom", _BLOOM),
}
# Changes after which a token passes through all experts: each has tokens, and no rounding flips a choice.
EVERY_EXPERT = {
    "mixtral": {"num_experts_per_tok": 6},
    "qwen3moe": {"num_experts_per_tok": 8},
    "deepseek2": {"num_experts_per_tok": 6},
    "deepseek3": {"num_experts_per_tok": 8, "n_group": 1, "topk_group": 1},
}
KINDS = (*_KINDS, *_OTHERS)
# Those that llama.cpp knows, too
GGUF_KINDS = tuple(kind for kind in KINDS if kind != "opt")


def llama3_scaling() -> dict[str, Any]:
    """Llama 3's rope scaling, of a model whose positions it stretches early. Others' code adds keys to it."""
    return {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }


def small_config(kind: str = "llama", **changes: Any) -> dict[str, Any]:
    """The config.json of a small model whose GGUF architecture is `kind`, with `changes` applied."""
    name, model_type, own = (_KINDS | _OTHERS)[kind]
    common = _COMMON if kind in _KINDS else {}
    return {"architectures": [name], "model_type": model_type} | common | own | changes


def random_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights for `config`, scaled so that logits are of order 1."""
    rng = np.random.default_rng(seed)

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = 0.1 * values + (not name.endswith("bias"))
        else:
            values /= np.sqrt(shape[1])
        return values.astype(np.float32)

    expected = expected_tensors(ModelConfig.from_hf(config))
    return {name: weight(name, want.shape) for name, want in expected.items()}
