"""A model's config between its two homes: Hugging Face's config.json and GGUF's metadata keys."""

import re
from collections.abc import Mapping
from operator import attrgetter

import numpy as np

from quant.artifacts.gguf_cursor import Value
from quant.artifacts.gguf_families import (
    HEAD_DIM_KEYS,
    LAYER_EPS,
    RMS_EPS,
    family_config,
    family_metadata,
)
from quant.artifacts.gguf_keys import KeyReader, scalar
from quant.artifacts.gguf_rope import ATTENTION_FACTOR, YARN, scaling_of_factors, yarn_metadata, yarn_scaling
from quant.artifacts.stop_tokens import gguf_stop_tokens, special_token
from quant.errors import InputError, shown
from quant.models import ARCHITECTURES, Architecture, ModelConfig
from quant.models.rope import DEFAULT_THETA, LONGROPE, RopeScaling, fixed_factors
from quant.present import present

ConfigValue = Value | list[Value] | RopeScaling | None  # of the config.json
# config.json key, field of ModelConfig, GGUF key after "ARCH.", type
Rows = tuple[tuple[str, str, str, type[int] | type[float]], ...]
CONFIG_KEYS: Rows = (
    ("max_position_embeddings", "max_positions", "context_length", int),
    ("hidden_size", "hidden_size", "embedding_length", int),
    ("num_hidden_layers", "num_layers", "block_count", int),
    ("intermediate_size", "ffn_size", "feed_forward_length", int),
    ("num_attention_heads", "num_heads", "attention.head_count", int),
    ("num_key_value_heads", "num_kv_heads", "attention.head_count_kv", int),
    ("rms_norm_eps", "norm_eps", RMS_EPS, float),
)
_EXPERT_KEYS: Rows = (
    ("num_experts_per_tok", "moe.num_experts_per_token", "expert_used_count", int),
    ("moe_intermediate_size", "moe.expert_ffn_size", "expert_feed_forward_length", int),
)
_DEEPSEEK_KEYS: Rows = (
    ("n_routed_experts", "moe.num_experts", "expert_count", int),
    *_EXPERT_KEYS,
    ("n_shared_experts", "moe.num_shared_experts", "expert_shared_count", int),
    ("first_k_dense_replace", "moe.num_dense_layers", "leading_dense_block_count", int),
    ("routed_scaling_factor", "moe.routed_scaling_factor", "expert_weights_scale", float),
    ("norm_topk_prob", "moe.norm_topk_prob", "expert_weights_norm", bool),
    ("q_lora_rank", "mla.q_lora_rank", "attention.q_lora_rank", int),
    ("kv_lora_rank", "mla.kv_lora_rank", "attention.kv_lora_rank", int),
    ("v_head_dim", "mla.v_head_dim", "attention.value_length", int),
    ("qk_rope_head_dim", "mla.qk_rope_head_dim", "rope.dimension_count", int),
)
_GROUP_KEYS: Rows = (
    ("n_group", "moe.num_groups", "expert_group_count", int),
    ("topk_group", "moe.groups_per_token", "expert_group_used_count", int),
)
# architecture -> its keys beyond those
OWN_KEYS: dict[str, Rows] = {
    "MixtralForCausalLM": (("num_local_experts", "moe.num_experts", "expert_count", int), _EXPERT_KEYS[0]),
    "Qwen3MoeForCausalLM": (("num_experts", "moe.num_experts", "expert_count", int), *_EXPERT_KEYS),
    "DeepseekV2ForCausalLM": _DEEPSEEK_KEYS,
    "DeepseekV3ForCausalLM": _DEEPSEEK_KEYS + _GROUP_KEYS,
}
# GGUF has no key for it, because llama.cpp computes in this one way
FIXED = {name: {"norm_topk_prob": True} for name in ("MixtralForCausalLM", "Qwen3MoeForCausalLM")}
OPTIONAL = {
    "num_key_value_heads",
    "q_lora_rank",
    "n_shared_experts",
    "first_k_dense_replace",
    "routed_scaling_factor",
    "norm_topk_prob",
    "n_group",
    "topk_group",
}
BIASES = ("attention_bias", "mlp_bias")  # flags that are set if a layer has one of their tensors
# llama.cpp refuses a file of these with attn_output.bias, which a true attention_bias has in transformers.
NO_OUTPUT_BIAS = ("qwen3", "qwen3moe")
LAYER_NUMBER = re.compile(r"^blk\.\d+\.")
GATING = "expert_gating_func"
GATINGS = {"softmax": 1, "sigmoid": 2}  # llama.cpp's numbers; a file without the key means softmax
LLAMA_BEST_OF_GROUP = 2  # scores that llama.cpp sums to a group's own
CAUSAL = "attention.causal"  # a file without the key is causal
# llama.cpp reads it for another kind of scaling and ignores it for this one; here it completes rope_freqs.weight.
ORIGINAL_CONTEXT = "rope.scaling.original_context_length"


def metadata_from_config(config: ModelConfig) -> dict[str, int | float | str]:
    """GGUF key -> value; everything llama.cpp needs beyond the tokenizer and general.*

    raises   InputError for parts that llama.cpp does not know, or computes in another way
    """
    arch = config.architecture.gguf_arch
    if arch is None:
        raise InputError(f"GGUF has no place for {config.architecture.name}; write a Hugging Face directory")
    if config.attention_bias and arch in NO_OUTPUT_BIAS:
        raise InputError(
            f"attention_bias is true, and GGUF's {arch} has no bias of the attention's output; write a Hugging Face "
            "directory"
        )
    if config.moe:
        _check_experts(config)
    metadata: dict[str, int | float | str] = {
        key: attrgetter(field)(config) for _, field, key, _ in _rows(config.architecture)
    }
    metadata |= {"vocab_size": config.vocab_size, **family_metadata(config)}
    if config.has_rope:
        metadata |= _rope_metadata(config)
    if config.mla:
        metadata[GATING] = GATINGS[present(config.moe).scoring]
    return {f"{arch}.{key}": value for key, value in metadata.items()}


def _rope_metadata(config: ModelConfig) -> dict[str, int | float | str]:
    rope = config.rope
    dims = (config.head_dim, config.mla.v_head_dim if config.mla else config.head_dim, config.rope_dim)
    metadata = {**dict(zip(HEAD_DIM_KEYS, dims, strict=True)), "rope.freq_base": rope.theta}
    if rope.rope_type == "linear":
        metadata |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope.factor}
    if rope.rope_type == "llama3":
        metadata[ORIGINAL_CONTEXT] = rope.original_max_position_embeddings
    if rope.rope_type == YARN:
        metadata |= yarn_metadata(config)
    if rope.rope_type == LONGROPE and not rope.has_fixed_factors:
        raise InputError(
            "a rotation of type longrope is not written to GGUF if its factors change or it has a magnitude; write a "
            "Hugging Face directory"
        )
    return metadata


def _rows(architecture: Architecture) -> Rows:
    rows = CONFIG_KEYS + OWN_KEYS.get(architecture.name, ())
    if architecture.norm == "rms":
        return rows
    return tuple((name, field, LAYER_EPS if key == RMS_EPS else key, kind) for name, field, key, kind in rows)


def _check_experts(config: ModelConfig) -> None:
    name, arch, moe = config.architecture.name, config.architecture.gguf_arch, present(config.moe)
    if moe.num_groups > 1 and moe.best_of_group != LLAMA_BEST_OF_GROUP:
        raise InputError(
            f"experts are chosen within {moe.groups_per_token} of {moe.num_groups} groups, which "
            f"llama.cpp does otherwise for {arch}; write a Hugging Face directory"
        )
    if moe.norm_topk_prob != FIXED.get(name, {}).get("norm_topk_prob", moe.norm_topk_prob):
        raise InputError(
            f"norm_topk_prob is {moe.norm_topk_prob}, and llama.cpp knows {arch} with "
            f"{not moe.norm_topk_prob} alone; write a Hugging Face directory"
        )


def config_from_metadata(
    metadata: Mapping[str, Value], tensors: Mapping[str, tuple[int, ...]], rope_factors: np.ndarray | None, where: str
) -> dict[str, ConfigValue]:
    """The config.json that a GGUF file's metadata amounts to.

    tensors        GGUF name -> shape: the vocabulary's size, and whether head and biases exist, are given nowhere else
    rope_factors   [head_dim // 2] float32, tensor rope_freqs.weight, or None
    raises         InputError naming the key that is missing or of the wrong type
    """
    architecture = _architecture(metadata, where)
    reader = KeyReader(metadata, present(architecture.gguf_arch), where)
    config: dict[str, ConfigValue] = {}
    for name, _, key, kind in _rows(architecture):
        value = reader.get(key, kind) if name in OPTIONAL else reader.require(key, kind)
        if value is not None:
            config[name] = value
    config |= FIXED.get(architecture.name, {})
    if reader.get(CAUSAL, bool) is False:
        config["is_causal"] = False  # refused as in a config.json
    if architecture.positions == "rope":
        config |= _mla_dims(reader) if architecture.has_mla else _head_dim(reader, architecture.partly_rotated)
        theta = reader.get("rope.freq_base", float) or DEFAULT_THETA
        config |= {
            "rope_theta": theta,
            "rope_scaling": _rope_scaling(reader, theta, rope_factors, architecture.has_mla),
        }
    config |= family_config(architecture, reader)
    config |= {"vocab_size": tensors["token_embd.weight"][0], "tie_word_embeddings": "output.weight" not in tensors}
    config["hidden_act"] = architecture.canonical({}).get("hidden_act", "silu")
    kinds = {LAYER_NUMBER.sub("blk.{}.", name) for name in tensors}
    for flag in BIASES:
        names = {row.gguf_name for row in architecture.tensors if row.only_if == flag}
        config |= {flag: not names.isdisjoint(kinds)} if names else {}
    token = special_token(metadata, "bos_token_id", where)
    if token is not None and token < tensors["token_embd.weight"][0]:
        config["bos_token_id"] = token
    config |= gguf_stop_tokens(metadata, where)
    named = {architecture.own_key(name): value for name, value in config.items()}
    return {"architectures": [architecture.name], "model_type": architecture.model_type, **named}


def _architecture(metadata: Mapping[str, Value], where: str) -> Architecture:
    """The architecture that the file names; of several that share the name, the one whose mark is among the keys."""
    arch = scalar(metadata, "general.architecture", str, where)
    rows = [row for row in ARCHITECTURES.values() if arch is not None and row.gguf_arch == arch]
    if arch is None or not rows:
        known = ", ".join(dict.fromkeys(row.gguf_arch for row in ARCHITECTURES.values() if row.gguf_arch))
        raise InputError(f"{where}: general.architecture is {shown(arch)}; known: {known}")
    marked = (row for row in rows if row.gguf_mark and _is_marked(metadata, row.gguf_mark, arch, where))
    return next(marked, None) or next(row for row in rows if row.gguf_mark is None)


def _is_marked(metadata: Mapping[str, Value], mark: tuple[str, int | None], arch: str, where: str) -> bool:
    key, wanted = mark
    value = scalar(metadata, f"{arch}.{key}", int, where)
    return bool(value) if wanted is None else value == wanted


def _head_dim(reader: KeyReader, is_partly_rotated: bool) -> dict[str, int | float]:
    key_length, _, dimension_count = HEAD_DIM_KEYS
    if is_partly_rotated and (head_dim := reader.get(key_length, int)):
        rotated = reader.get(dimension_count, int) or head_dim
        return {"head_dim": head_dim, "partial_rotary_factor": rotated / head_dim}
    head_dims = {value for key in HEAD_DIM_KEYS if (value := reader.get(key, int)) is not None}
    if len(head_dims) > 1:
        raise InputError(f"{reader.where}: {', '.join(HEAD_DIM_KEYS)} differ ({sorted(head_dims)}): not supported")
    if head_dims:
        return {"head_dim": head_dims.pop()}
    # As llama.cpp has it; a config.json of some families means a fixed width without the key.
    width, heads = (reader.require(key, int) for key in ("embedding_length", "attention.head_count"))
    return {"head_dim": width // heads} if heads > 0 and width % heads == 0 else {}


def _mla_dims(reader: KeyReader) -> dict[str, int | None]:
    """Sizes of multi-head latent attention, for which GGUF has other keys than a config.json.

    Newer files speak of keys and values as the cache has them, and of the heads' own under names with "mla".
    """
    gating = reader.get(GATING, int) or GATINGS["softmax"]
    groups = reader.get("expert_group_count", int) or 1
    if gating not in GATINGS.values() or (gating == GATINGS["softmax"] and groups > 1):
        raise InputError(
            f"{reader.where}: experts are chosen by function {gating} in {groups} groups, known: {GATINGS} "
            "(expert_gating_func), and groups with sigmoid alone"
        )
    key_size = reader.get("attention.key_length_mla", int) or reader.require("attention.key_length", int)
    return {
        "num_key_value_heads": reader.require("attention.head_count", int),
        "qk_nope_head_dim": key_size - reader.require("rope.dimension_count", int),
        "v_head_dim": reader.get("attention.value_length_mla", int) or reader.require("attention.value_length", int),
        "q_lora_rank": reader.get("attention.q_lora_rank", int) or None,
    }


def _rope_scaling(
    reader: KeyReader, theta: float, rope_factors: np.ndarray | None, has_mla: bool
) -> RopeScaling | None:
    """raises InputError for a kind that is not supported

    source   llama.cpp, llama_model_base::load_hparams(): a factor without a type is linear, in either of two keys
    """
    factor = reader.get("rope.scaling.factor", float) or reader.get("rope.scale_linear", float) or 1.0
    kind = reader.get("rope.scaling.type", str) or "linear"
    if kind not in ("none", "linear", YARN):
        raise InputError(
            f"{reader.where}: rope.scaling.type {shown(kind)} is not supported; known: none, linear, {YARN}"
        )
    if rope_factors is not None and kind == YARN:
        raise InputError(f"{reader.where}: rope_freqs.weight next to rope.scaling.type {YARN} is not supported")
    if kind == YARN:
        return yarn_scaling(reader, has_mla)
    if (magnitude := reader.get(ATTENTION_FACTOR, float)) not in (None, 1.0):  # which llama.cpp applies to all kinds
        raise InputError(
            f"{reader.where}: {ATTENTION_FACTOR} is {shown(magnitude)} next to rope.scaling.type {kind}, known: 1, and "
            f"others with {YARN}"
        )
    factor = factor if kind == "linear" else 1.0
    if rope_factors is None:
        return None if factor == 1.0 else {"rope_type": "linear", "factor": factor}
    longest = reader.require("context_length", int)
    if factor != 1.0:  # llama.cpp applies both
        return fixed_factors(factor * rope_factors.astype(np.float64), longest)
    original = reader.get(ORIGINAL_CONTEXT, int)
    return scaling_of_factors(rope_factors, theta, (original, longest) if original else (longest,))
