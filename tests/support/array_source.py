"""A model source made of arrays of any format and shape, and random weights for a Llama config."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.formats import get_format
from quant.qtensor import QTensor
from quant.source import TensorInfo, TokenizerInfo


class ArraySource:
    """`quant.source.Source` over QTensors; float arrays are stored in `formats[name]`, or "f32"."""

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, np.ndarray | QTensor],
        formats: Mapping[str, str] | None = None,
        tokenizer: TokenizerInfo | None = None,
    ) -> None:
        formats = formats or {}
        self.spec = "arrays"
        self.config = dict(config)
        self.tokenizer = tokenizer
        self._qtensors = {
            name: weight if isinstance(weight, QTensor) else _stored(weight, formats.get(name, "f32"))
            for name, weight in weights.items()
        }

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo.of(q) for name, q in self._qtensors.items()}

    def read(self, name: str) -> QTensor:
        return self._qtensors[name]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name, qtensor in self._qtensors.items():
            digest.update(name.encode())
            for part in qtensor.parts.values():
                digest.update(np.ascontiguousarray(part))
        return digest.hexdigest()


def llama_config(**changes: Any) -> dict[str, Any]:
    """A small Llama config in Hugging Face's keys, GQA, untied, with `changes` applied."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
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
        "attention_bias": False,
        "mlp_bias": False,
    } | changes


def llama_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights for `config`, scaled so that logits are of order 1."""
    rng = np.random.default_rng(seed)
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    linears = {
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }

    def matrix(num_rows: int, row_size: int) -> np.ndarray:
        return (rng.standard_normal((num_rows, row_size)) / np.sqrt(row_size)).astype(np.float32)

    def vector(size: int) -> np.ndarray:
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name, shape in linears.items():
            weights[f"{prefix}.{name}.weight"] = matrix(*shape)
            if config["attention_bias" if name.startswith("self_attn") else "mlp_bias"]:
                weights[f"{prefix}.{name}.bias"] = vector(shape[0]) - 1
        weights[f"{prefix}.input_layernorm.weight"] = vector(hidden)
        weights[f"{prefix}.post_attention_layernorm.weight"] = vector(hidden)
    weights["model.norm.weight"] = vector(hidden)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    return weights


def _stored(weight: np.ndarray, format_name: str) -> QTensor:
    return get_format(format_name).quantize_ref(np.ascontiguousarray(weight, dtype=np.float32))
