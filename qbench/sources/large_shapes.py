"""Configs of published models too large to make at random: for plans alone. Facts from each model's own config.json."""

from qbench.sources.shapes import Shape

_LLAMA: Shape = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
_MISTRAL: Shape = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu"}
_BLOOM: Shape = {"architectures": ["BloomForCausalLM"], "model_type": "bloom"}
_DEEPSEEK_V2: Shape = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_act": "silu"}

LARGE_SHAPES: dict[str, Shape] = {
    "llama-2-7b": _LLAMA
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
    "llama-2-70b": _LLAMA
    | {
        "vocab_size": 32000,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
    "mistral-7b": _MISTRAL
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
    },
    "bloom-176b": _BLOOM
    | {
        "vocab_size": 250880,
        "hidden_size": 14336,
        "n_layer": 70,
        "num_attention_heads": 112,
        "layer_norm_epsilon": 1e-5,
        "seq_length": 2048,
    },
    "deepseek-v2": _DEEPSEEK_V2
    | {
        "vocab_size": 102400,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
        },
        "n_routed_experts": 160,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1536,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 16.0,
        "topk_method": "group_limited_greedy",
        "n_group": 8,
        "topk_group": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
}
