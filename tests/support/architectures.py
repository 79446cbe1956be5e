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

# name -> (class in `architectures`, model_type, what its config has beyond the common)
_KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "llama", {"attention_bias": False, "mlp_bias": False}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {"use_sliding_window": False}),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {"head_dim": 24}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe", {"head_dim": 24, **_QWEN3_MOE}),
    "deepseek2": ("DeepseekV2ForCausalLM", "deepseek_v2", _DEEPSEEK),
}
KINDS = tuple(_KINDS)


def small_config(kind: str = "llama", **changes: Any) -> dict[str, Any]:
    """The config.json of a small model whose GGUF architecture is `kind`, with `changes` applied."""
    name, model_type, own = _KINDS[kind]
    return {"architectures": [name], "model_type": model_type} | _COMMON | own | changes


def random_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights for `config`, scaled so that logits are of order 1."""
    rng = np.random.default_rng(seed)

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = 0.1 * values + (not name.endswith(".bias"))
        else:
            values /= np.sqrt(shape[1])
        return values.astype(np.float32)

    expected = expected_tensors(ModelConfig.from_hf(config))
    return {name: weight(name, want.shape) for name, want in expected.items()}
