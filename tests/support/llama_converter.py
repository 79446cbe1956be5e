"""GGUF files as llama.cpp's own converter makes them of Hugging Face weights: its names, keys, row order and stacks.

Written from the conventions alone (llama.cpp, convert_hf_to_gguf.py), by the gguf package, sharing nothing with the
writer under test.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType

Config = Mapping[str, Any]
Tensors = dict[str, np.ndarray]
ARCHS = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "GPT2LMHeadModel": gguf.MODEL_ARCH.GPT2,
    "DeepseekV2ForCausalLM": gguf.MODEL_ARCH.DEEPSEEK2,
    "DeepseekV3ForCausalLM": gguf.MODEL_ARCH.DEEPSEEK2,
}

FILE_TYPES = {
    GGMLQuantizationType.F32: gguf.LlamaFileType.ALL_F32,
    GGMLQuantizationType.F16: gguf.LlamaFileType.MOSTLY_F16,
    GGMLQuantizationType.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}


def convert(
    config: Config,
    weights: Mapping[str, np.ndarray],
    path: Path,
    matrices: GGMLQuantizationType = GGMLQuantizationType.F16,
    stack: Callable[[Tensors], Tensors] | None = None,
    encode: Callable[[np.ndarray, GGMLQuantizationType], np.ndarray] = gguf.quants.quantize,
    kind_of: Callable[[str, GGMLQuantizationType], GGMLQuantizationType] = lambda name, kind: kind,
) -> Path:
    """weights [N, K] as `matrices`, all vectors, routers and positions in float32, without a tokenizer

    stack     layout of a layer's experts in the file; None: `stacked`
    encode    bytes of a matrix [N, K] of a type
    kind_of   type of a matrix by its GGUF name, if not `matrices`
    """
    name = config["architectures"][0]
    config = OWN_WORDS.get(name, dict)(config)
    arch = ARCHS[name]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_file_type(FILE_TYPES[matrices])
    writer.add_tokenizer_model("no_vocab")
    _add_common_keys(writer, config)
    OWN_KEYS.get(name, lambda writer, config: None)(writer, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for tensor_name, tensor in (stack or stacked)(OWN_TENSORS.get(name, _as_they_are)(config, dict(weights))).items():
        known = names.get_name(tensor_name, try_suffixes=(".weight", ".bias"))
        gguf_name = known or tensor_name
        keeps = tensor.ndim == 1 or any(word in gguf_name for word in ("ffn_gate_inp", "position_embd"))
        kind = GGMLQuantizationType.F32 if keeps else kind_of(gguf_name, matrices)
        data = encode(np.ascontiguousarray(tensor, np.float32), kind)
        writer.add_tensor(gguf_name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_common_keys(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    if "layer_norm_eps" in config:  # a GPT-2, of which no more is said
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        return
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config.get("kv_lora_rank") is None:
        writer.add_head_count_kv(config["num_key_value_heads"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    experts = next(
        (config[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if key in config), 0
    )
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])


def _llama_keys(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _qwen3moe_keys(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _deepseek_keys(writer: gguf.GGUFWriter, config: Config) -> None:
    """Keys and values as the cache has them: one head of the latent and the rotated key."""
    rope, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + rope)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    # The converter leaves it out if there is no such rank, and llama.cpp then goes by the 27 layers of
    # DeepSeek-V2-Lite.
    writer.add_q_lora_rank(config["q_lora_rank"] or 0)
    writer.add_kv_lora_rank(rank)
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    gating = {"softmax": gguf.ExpertGatingFuncType.SOFTMAX, "sigmoid": gguf.ExpertGatingFuncType.SIGMOID}
    writer.add_expert_gating_func(gating[config["scoring_func"]])
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    writer.add_rope_dimension_count(rope)
    yarn = config.get("rope_scaling")
    if yarn:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(yarn["factor"])
        writer.add_rope_scaling_orig_ctx_len(yarn["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * yarn["mscale_all_dim"])


def _gpt2_words(config: Config) -> Config:
    """Its config in the words that most others have."""
    return {
        **config,
        "num_hidden_layers": config["n_layer"],
        "max_position_embeddings": config["n_positions"],
        "hidden_size": config["n_embd"],
        "intermediate_size": config["n_inner"],
        "num_attention_heads": config["n_head"],
        "layer_norm_eps": config["layer_norm_epsilon"],
    }


def _gpt2_tensors(config: Config, tensors: Tensors) -> Tensors:
    """q, k and v as one tensor, out x in, under names of the file."""
    words = {
        "input_layernorm": "attn_norm",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
    }
    outside = {"embed_tokens": "token_embd", "embed_positions": "position_embd", "norm": "output_norm"}
    out = {}
    for name, tensor in tensors.items():
        *module, kind = name.split(".")
        if module[1] != "layers":
            out[f"{outside[module[1]]}.{kind}"] = tensor
        elif module[-1] == "q_proj":
            parts = [tensors[name.replace("q_proj", other)] for other in ("q_proj", "k_proj", "v_proj")]
            out[f"blk.{module[2]}.attn_qkv.{kind}"] = np.concatenate(parts)
        elif module[-1] not in ("k_proj", "v_proj"):
            out[f"blk.{module[2]}.{words['.'.join(module[3:])]}.{kind}"] = tensor
    return out


def _as_they_are(config: Config, tensors: Tensors) -> Tensors:
    return tensors


def _neighbours(config: Config, tensors: Tensors) -> Tensors:
    """Rows of queries and keys as llama.cpp turns them: the two halves of a head, one row of each after the other."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        count = heads.get(name.split(".")[-2])
        if count:
            halves = tensor.reshape(count, 2, -1, *tensor.shape[1:])
            tensors[name] = halves.swapaxes(1, 2).reshape(tensor.shape)
    return tensors


def _split_latent(config: Config, tensors: Tensors) -> Tensors:
    """kv_b_proj in two: k_b [H, R, N], turned around, and v_b [H, V, R]; and the bias of the choice as any bias."""
    out = {}
    for name, tensor in tensors.items():
        if "kv_b_proj" not in name:
            out[name.replace("e_score_correction_bias", "e_score_correction.bias")] = tensor
            continue
        per_head = tensor.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
        k_b, v_b = np.split(per_head, [config["qk_nope_head_dim"]], axis=1)
        out[name.replace("kv_b_proj", "k_b_proj")] = k_b.swapaxes(1, 2)
        out[name.replace("kv_b_proj", "v_b_proj")] = v_b
    return out


def stacked(tensors: Tensors) -> Tensors:
    """Experts of a layer as one tensor, in order."""
    stacks: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        before, experts, after = name.partition(".experts.")
        key = f"{before}{experts}{after.partition('.')[2]}" if experts else name
        stacks.setdefault(key, []).append(tensor)
    return {name: np.stack(parts) if ".experts." in name else parts[0] for name, parts in stacks.items()}


def gate_and_up_as_one(tensors: Tensors) -> Tensors:
    """`stacked`, and gate and up of each expert one below the other, as the converter does it on request."""
    out = stacked(tensors)
    for name in [name for name in out if ".experts.gate_proj" in name]:
        layer = name.split(".")[2]
        parts = out.pop(name), out.pop(name.replace("gate_proj", "up_proj"))
        out[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate(parts, axis=1)
    return out


def one_by_one(tensors: Tensors) -> Tensors:
    """No stacks: a tensor for each expert of Mixtral, as the files of 2023 have them."""
    words = {"w1": "ffn_gate", "w2": "ffn_down", "w3": "ffn_up"}
    out = {}
    for name, tensor in tensors.items():
        if ".experts." in name:
            layer, expert, word = (name.split(".")[place] for place in (2, 5, 6))
            name = f"blk.{layer}.{words[word]}.{expert}.weight"
        out[name] = tensor
    return out


OWN_WORDS: dict[str, Callable[[Config], Config]] = {"GPT2LMHeadModel": _gpt2_words}
OWN_KEYS: dict[str, Callable[[gguf.GGUFWriter, Config], None]] = {
    "LlamaForCausalLM": _llama_keys,
    "MixtralForCausalLM": _llama_keys,
    "Qwen3MoeForCausalLM": _qwen3moe_keys,
    "DeepseekV2ForCausalLM": _deepseek_keys,
    "DeepseekV3ForCausalLM": _deepseek_keys,
}
OWN_TENSORS: dict[str, Callable[[Config, Tensors], Tensors]] = {
    "LlamaForCausalLM": _neighbours,
    "MixtralForCausalLM": _neighbours,
    "GPT2LMHeadModel": _gpt2_tensors,
    "DeepseekV2ForCausalLM": _split_latent,
    "DeepseekV3ForCausalLM": _split_latent,
}
