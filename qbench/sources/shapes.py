"""Configs of published models, for random weights of their shape. Facts from each model's own config.json."""

ShapeValue = bool | int | float | str | None | list[str] | dict[str, str | int | float]  # of a key of config.json
Shape = dict[str, ShapeValue]
# Common values of all models of one kind.
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu"}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu"}
_DEEPSEEK_V3 = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu"}
_DEEPSEEK_V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_act": "silu"}
_MIXTRAL = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu"}
_QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu"}


def _llama3_scaling(factor: float) -> dict[str, str | int | float]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _yarn(factor: float, original_context: int, mscale: float) -> dict[str, str | int | float]:
    return {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original_context,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": mscale,
        "mscale_all_dim": mscale,
    }


# fmt: off
_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
    "tie_word_embeddings",
)
_LLAMAS: dict[str, tuple] = {
    "tiny": (512, 256, 512, 2, 4, 2, 64, 1024, 1e-5, 10000.0, None, False),
    "smollm2-135m": (49152, 576, 1536, 30, 9, 3, 64, 8192, 1e-5, 100000.0, None, True),
    "tinyllama-1.1b": (32000, 2048, 5632, 22, 32, 4, 64, 2048, 1e-5, 10000.0, None, False),
    # The body of llama-3.2-1b between an embedding and a head of its own that are a quarter as tall, so that the layers
    # are most of the bytes and of the time. llama.cpp and this project are compared on it.
    "llama-1.1b": (32000, 2048, 8192, 16, 32, 8, 64, 8192, 1e-5, 500000.0, None, False),
    "llama-3.2-1b": (128256, 2048, 8192, 16, 32, 8, 64, 131072, 1e-5, 500000.0, _llama3_scaling(32.0), True),
    "llama-3.2-3b": (128256, 3072, 8192, 28, 24, 8, 128, 131072, 1e-5, 500000.0, _llama3_scaling(32.0), True),
    "llama-3.1-8b": (128256, 4096, 14336, 32, 32, 8, 128, 131072, 1e-5, 500000.0, _llama3_scaling(8.0), False),
}
_QWEN2S: dict[str, tuple] = {
    "qwen2.5-0.5b": (151936, 896, 4864, 24, 14, 2, 64, 32768, 1e-6, 1000000.0, None, True),
    "qwen2.5-1.5b": (151936, 1536, 8960, 28, 12, 2, 128, 131072, 1e-6, 1000000.0, None, True),
    "qwen2.5-7b": (152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e-6, 1000000.0, None, False),
}
_QWEN3S: dict[str, tuple] = {
    "qwen3-0.6b": (151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e-6, 1000000.0, None, True),
    "qwen3-4b": (151936, 2560, 9728, 36, 32, 8, 128, 40960, 1e-6, 1000000.0, None, True),
}
# The same, then the experts.
_EXPERT_KEYS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
_QWEN3_MOES: dict[str, tuple] = {
    "tiny-moe": (512, 256, 512, 2, 4, 2, 64, 1024, 1e-6, 10000.0, None, False, 8, 2, 256, True),
    "qwen3-30b-a3b": (151936, 2048, 6144, 48, 32, 4, 128, 40960, 1e-6, 1000000.0, None, False, 128, 8, 768, True),
}
_MIXTRALS: dict[str, tuple] = {
    "mixtral-8x7b": (32000, 4096, 14336, 32, 32, 8, 128, 32768, 1e-5, 1000000.0, None, False, 8, 2),
}
# The same without a head_dim of its own and with YaRN, then the experts and the latent.
_DEEPSEEK_V2S: dict[str, tuple] = {
    "tiny-mla-moe": (
        512, 256, 512, 2, 4, 4, None, 1024, 1e-6, 10000.0, None, False, 8, 2, 256, 1, 1, None, 64, 32, 16, 32,
    ),
    "deepseek-v2-lite": (
        102400, 2048, 10944, 27, 16, 16, None, 163840, 1e-6, 10000.0, _yarn(40.0, 4096, 0.707), False,
        64, 6, 1408, 2, 1, None, 512, 128, 64, 128,
    ),
}
# The same, then how experts are chosen.
_DEEPSEEK_V3S: dict[str, tuple] = {
    "deepseek-v3": (
        129280, 7168, 18432, 61, 128, 128, None, 163840, 1e-6, 10000.0, _yarn(40.0, 4096, 1.0), False,
        256, 8, 2048, 1, 3, 1536, 512, 128, 64, 128,
        "noaux_tc", "sigmoid", 8, 4, True, 2.5,
    ),
}
_LATENT_KEYS = (
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
)
_CHOICE_KEYS = ("topk_method", "scoring_func", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor")
# fmt: on


def _configs(common: Shape, rows: dict[str, tuple], keys: tuple[str, ...] = _KEYS) -> dict[str, Shape]:
    return {name: common | dict(zip(keys, row, strict=True)) for name, row in rows.items()}


SHAPES: dict[str, Shape] = {
    **_configs(_LLAMA, _LLAMAS),
    **_configs(_QWEN2, _QWEN2S),
    **_configs(_QWEN3, _QWEN3S),
    **_configs(_QWEN3_MOE, _QWEN3_MOES, _KEYS + _EXPERT_KEYS),
    **_configs(_MIXTRAL, _MIXTRALS, (*_KEYS, "num_local_experts", "num_experts_per_tok")),
    **_configs(_DEEPSEEK_V2, _DEEPSEEK_V2S, _KEYS + _LATENT_KEYS),
    **_configs(_DEEPSEEK_V3, _DEEPSEEK_V3S, _KEYS + _LATENT_KEYS + _CHOICE_KEYS),
}
