"""A model's config between its two homes: Hugging Face's config.json and GGUF's metadata keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.artifacts.gguf_rope import llama3_scaling
from quant.errors import InputError
from quant.models import ARCHITECTURES, ModelConfig
from quant.models.rope import DEFAULT_THETA

# config.json key, field of ModelConfig, GGUF key after "ARCH.", type
CONFIG_KEYS: tuple[tuple[str, str, str, type], ...] = (
    ("max_position_embeddings", "max_positions", "context_length", int),
    ("hidden_size", "hidden_size", "embedding_length", int),
    ("num_hidden_layers", "num_layers", "block_count", int),
    ("intermediate_size", "ffn_size", "feed_forward_length", int),
    ("num_attention_heads", "num_heads", "attention.head_count", int),
    ("num_key_value_heads", "num_kv_heads", "attention.head_count_kv", int),
    ("rms_norm_eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", float),
)
OPTIONAL = {"num_key_value_heads"}
# flag -> one of the tensors that are there where it is set
BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"}
HEAD_DIM_KEYS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
# llama.cpp reads it for another kind of scaling and ignores it for this one; here it completes rope_freqs.weight.
ORIGINAL_CONTEXT = "rope.scaling.original_context_length"


def metadata_from_config(config: ModelConfig) -> dict[str, int | float | str]:
    """GGUF key -> value; everything llama.cpp needs beyond the tokenizer and general.*"""
    metadata: dict[str, int | float | str] = {key: getattr(config, field) for _, field, key, _ in CONFIG_KEYS}
    metadata |= {key: config.head_dim for key in HEAD_DIM_KEYS}
    metadata |= {"vocab_size": config.vocab_size, "rope.freq_base": config.rope.theta}
    if config.rope.rope_type == "linear":
        metadata |= {"rope.scaling.type": "linear", "rope.scaling.factor": config.rope.factor}
    if config.rope.rope_type == "llama3":
        metadata[ORIGINAL_CONTEXT] = config.rope.original_max_position_embeddings
    return {f"{config.architecture.gguf_arch}.{key}": value for key, value in metadata.items()}


def config_from_metadata(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], rope_factors: np.ndarray | None, where: str
) -> dict[str, Any]:
    """The config.json that a GGUF file's metadata amounts to.

    tensors        GGUF name -> shape: the vocabulary's size, and whether head and biases exist, stand nowhere else
    rope_factors   [head_dim // 2] float32, tensor rope_freqs.weight, or None
    raises         InputError naming the key that is missing or of the wrong type
    """
    arch = metadata.get("general.architecture")
    architecture = next((row for row in ARCHITECTURES.values() if row.gguf_arch == arch), None)
    if architecture is None:
        known = ", ".join(row.gguf_arch for row in ARCHITECTURES.values())
        raise InputError(f"{where}: general.architecture is {arch!r}; known: {known}")
    reader = _Reader(metadata, arch, where)
    config: dict[str, Any] = {"architectures": [architecture.name], "model_type": architecture.model_type}
    for name, _, key, kind in CONFIG_KEYS:
        value = reader.get(key, kind, required=name not in OPTIONAL)
        if value is not None:
            config[name] = value
    head_dims = {value for key in HEAD_DIM_KEYS if (value := reader.get(key, int)) is not None}
    if len(head_dims) > 1:
        raise InputError(f"{where}: {', '.join(HEAD_DIM_KEYS)} differ ({sorted(head_dims)}), which is not supported")
    if head_dims:
        config["head_dim"] = head_dims.pop()
    theta = reader.get("rope.freq_base", float) or DEFAULT_THETA
    config |= {"vocab_size": tensors["token_embd.weight"][0], "hidden_act": "silu", "rope_theta": theta}
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config |= {flag: name in tensors for flag, name in BIASES.items()}
    config["rope_scaling"] = _rope_scaling(reader, theta, rope_factors)
    for name in ("bos_token_id", "eos_token_id"):
        token = metadata.get(f"tokenizer.ggml.{name}")
        if token is not None:
            config[name] = token
    return config


def _rope_scaling(reader: "_Reader", theta: float, rope_factors: np.ndarray | None) -> dict[str, Any] | None:
    kind = reader.get("rope.scaling.type", str) or "none"
    if kind not in ("none", "linear"):
        raise InputError(f"{reader.where}: rope.scaling.type {kind!r} is not supported; known: none, linear")
    if kind == "linear":
        return {"rope_type": "linear", "factor": reader.get("rope.scaling.factor", float, required=True)}
    if rope_factors is None:
        return None
    return llama3_scaling(rope_factors, theta, reader.get(ORIGINAL_CONTEXT, int), reader.where)


class _Reader:
    """Typed look-ups under one architecture's prefix."""

    def __init__(self, metadata: Mapping[str, Any], arch: str, where: str) -> None:
        self.metadata, self.arch, self.where = metadata, arch, where

    def get(self, key: str, kind: type, *, required: bool = False) -> Any:
        """The value as `kind`, or None where it is absent."""
        full = f"{self.arch}.{key}"
        value = self.metadata.get(full)
        if value is None:
            if required:
                raise InputError(f"{self.where}: key {full!r} is missing")
            return None
        if type(value) is not kind:
            raise InputError(f"{self.where}: key {full!r} must be {kind.__name__}, got {value!r}")
        if kind is float:
            with np.errstate(over="ignore"):
                return float(str(np.float32(value)))  # stored as float32: the shortest number that means the same
        return value
