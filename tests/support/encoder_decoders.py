"""A small T5, random weights for it, and the same model in transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from quant.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder_tensors

_COMMON = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_model": 64,
    "d_kv": 24,
    "d_ff": 96,
    "num_heads": 4,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "vocab_size": 160,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 40,  # within the tests' texts
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}


def small_t5(**changes: Any) -> dict[str, Any]:
    return _COMMON | changes


def t5_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights, no norm like another, scaled so that logits are of order 1."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in encoder_decoder_tensors(EncoderDecoderConfig.from_hf(config)).items():
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = 0.1 * values + 1
        elif "relative_attention_bias" not in name and name != "shared.weight":
            values /= np.sqrt(shape[1])
        if name.endswith(".q.weight"):
            values /= np.sqrt(config["d_kv"])  # scores are not scaled by anything else
        weights[name] = values.astype(np.float32)
    return weights


def write_t5(folder: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})
    return folder
