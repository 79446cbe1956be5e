"""Configs of published models, for random weights of their shape. Facts from each model's own config.json."""

from typing import Any

_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}


def _llama3_scaling(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


# fmt: off
_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
    "tie_word_embeddings",
)
_ROWS: dict[str, tuple] = {
    "tiny": (512, 256, 512, 2, 4, 2, 64, 1024, 1e-5, 10000.0, None, False),
    "smollm2-135m": (49152, 576, 1536, 30, 9, 3, 64, 8192, 1e-5, 100000.0, None, True),
    "tinyllama-1.1b": (32000, 2048, 5632, 22, 32, 4, 64, 2048, 1e-5, 10000.0, None, False),
    "llama-3.2-1b": (128256, 2048, 8192, 16, 32, 8, 64, 131072, 1e-5, 500000.0, _llama3_scaling(32.0), True),
    "llama-3.2-3b": (128256, 3072, 8192, 28, 24, 8, 128, 131072, 1e-5, 500000.0, _llama3_scaling(32.0), True),
    "llama-3.1-8b": (128256, 4096, 14336, 32, 32, 8, 128, 131072, 1e-5, 500000.0, _llama3_scaling(8.0), False),
}
# fmt: on

SHAPES: dict[str, dict[str, Any]] = {
    name: {**_LLAMA, **dict(zip(_KEYS, row, strict=True))} for name, row in _ROWS.items()
}
