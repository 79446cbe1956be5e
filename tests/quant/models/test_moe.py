"""Experts and latent attention out of Hugging Face's keys, and refusals by name."""

import json

import numpy as np
import pytest
from support.architectures import small_config

from quant.errors import InputError
from quant.models import MlaConfig, ModelConfig, MoeConfig


def test_qwen3_experts():
    config = ModelConfig.from_hf(small_config("qwen3moe"))
    assert config.moe == MoeConfig(num_experts=8, num_experts_per_token=3, expert_ffn_size=32, norm_topk_prob=True)
    assert [config.layer_kind(layer) for layer in range(2)] == ["moe", "moe"]
    assert config.expert_share == 3 / 8


def test_deepseek_experts():
    changes = {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "routed_scaling_factor": 16.0}
    config = ModelConfig.from_hf(small_config("deepseek2", **changes))
    assert config.moe == MoeConfig(6, 2, 32, 64, 1, False, 16.0, 3, 2)
    assert [config.layer_kind(layer) for layer in range(3)] == ["dense", "moe", "moe"]


def test_mixtral_experts():
    config = ModelConfig.from_hf(small_config("mixtral"))
    assert config.moe == MoeConfig(6, 2, 96, norm_topk_prob=True)


@pytest.mark.parametrize(
    "kind, key, alias",
    [
        ("qwen3moe", "num_experts", "num_local_experts"),
        ("mixtral", "num_local_experts", "num_experts"),
        ("deepseek2", "n_routed_experts", "num_local_experts"),
        ("deepseek3", "n_routed_experts", "num_local_experts"),
    ],
)
def test_number_of_experts_by_the_other_name_of_transformers(kind, key, alias, caplog):
    """Version 5 writes Qwen3-MoE's as num_local_experts."""
    config = small_config(kind)
    count = config.pop(key)
    assert ModelConfig.from_hf({**config, alias: count}).moe.num_experts == count
    assert ModelConfig.from_hf({**config, alias: count, key: count}).moe.num_experts == count
    assert not caplog.text
    assert ModelConfig.from_hf({**config, key: count, alias: count + 1}).moe.num_experts == count
    assert f"{key} is {count} and {alias}, its other name, {count + 1}: the first counts" in caplog.text


@pytest.mark.filterwarnings("ignore")
def test_qwen3_experts_as_transformers_saves_them(tmp_path):
    transformers = pytest.importorskip("transformers")
    saved = {**small_config("qwen3moe")}
    transformers.Qwen3MoeConfig(**{key: saved[key] for key in saved if key != "architectures"}).save_pretrained(
        tmp_path
    )
    written = json.loads((tmp_path / "config.json").read_text())
    assert ModelConfig.from_hf({**written, "architectures": saved["architectures"]}).moe.num_experts == 8


def test_deepseek_v3_chooses_by_biased_sigmoids_in_groups():
    config = ModelConfig.from_hf(small_config("deepseek3"))
    assert config.moe == MoeConfig(8, 2, 32, 32, 1, True, 1.5, 4, 2, 2, "sigmoid", has_choice_bias=True)
    bare = {
        name: value for name, value in small_config("deepseek3").items() if name not in ("scoring_func", "topk_method")
    }
    assert ModelConfig.from_hf(bare).moe == config.moe


def test_groups_are_ignored_if_the_choice_is_greedy():
    config = ModelConfig.from_hf(small_config("deepseek2", n_group=3, topk_group=1))
    assert (config.moe.num_groups, config.moe.groups_per_token) == (1, 1)


@pytest.mark.parametrize("q_lora_rank, plain", [(None, True), (48, False)], ids=["plain", "low rank"])
def test_latent_attention(q_lora_rank, plain):
    config = ModelConfig.from_hf(small_config("deepseek2", q_lora_rank=q_lora_rank))
    assert config.mla == MlaConfig(q_lora_rank or 0, 32, 16, 8, 24)
    assert config.mla.has_plain_q == plain
    assert (config.head_dim, config.rope_dim, config.mla.latent_size) == (24, 8, 40)


@pytest.mark.parametrize("mscale_all_dim, scale", [(None, 1.0), (0.707, (0.0707 * np.log(40) + 1) ** 2)])
def test_yarn_of_latent_attention_is_partly_in_the_softmax(mscale_all_dim, scale):
    scaling = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707}
    config = ModelConfig.from_hf(small_config("deepseek2", rope_scaling=scaling | {"mscale_all_dim": mscale_all_dim}))
    assert config.rope.softmax_scale == pytest.approx(scale, rel=2**-40)


def test_a_dense_model_has_neither():
    config = ModelConfig.from_hf(small_config("llama"))
    assert (config.moe, config.mla, config.layer_kind(0), config.rope_dim) == (None, None, "dense", config.head_dim)
    assert config.expert_share == 1


@pytest.mark.parametrize(
    "kind, changes, message",
    [
        pytest.param("qwen3moe", {"num_experts": None}, "'num_experts' is missing", id="no experts"),
        pytest.param("qwen3moe", {"num_experts_per_tok": 9}, "is 9, expected at most .* experts, 8", id="too many"),
        pytest.param("qwen3moe", {"decoder_sparse_step": 2}, "decoder_sparse_step 2 is not", id="every other layer"),
        pytest.param(
            "qwen3moe", {"mlp_only_layers": [1]}, r"mlp_only_layers \[1\] is not", id="dense layers by number"
        ),
        pytest.param(
            "deepseek2", {"scoring_func": "sigmoid"}, "'sigmoid' is not supported; known: softmax", id="sigmoid"
        ),
        pytest.param("deepseek2", {"topk_method": "noaux_tc"}, "'noaux_tc' is not supported", id="choice by bias"),
        pytest.param("deepseek3", {"topk_method": "greedy"}, "'greedy' is not supported", id="choice without bias"),
        pytest.param(
            "deepseek3", {"topk_group": 1, "num_experts_per_tok": 3}, "topk_group 1 groups, 2", id="few groups"
        ),
        pytest.param("deepseek3", {"n_group": 8}, "at least 2 experts in each group", id="groups of one"),
        pytest.param("deepseek3", {"rope_interleave": False}, "rope_interleave false", id="rotary halves"),
        pytest.param("mixtral", {"num_local_experts": None}, "'num_local_experts' is missing", id="mixtral's experts"),
        pytest.param("deepseek2", {"kv_lora_rank": None}, "'kv_lora_rank' is missing", id="no latent"),
        pytest.param(
            "deepseek2", {"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7, expected an even", id="odd rotation"
        ),
        pytest.param(
            "deepseek2", {"num_key_value_heads": 2}, "is 2, expected num_attention_heads, 4", id="shared heads"
        ),
        pytest.param("deepseek2", {"v_head_dim": 40}, "v_head_dim is 40, expected at most .* 24", id="wide values"),
        pytest.param("deepseek2", {"n_shared_experts": -1}, "whole number from 0", id="fewer than none"),
        pytest.param(
            "deepseek2",
            {"topk_method": "group_limited_greedy", "n_group": 4},
            "n_group is 4 .* expected groups of equal size out of 6",
            id="uneven groups",
        ),
    ],
)
def test_unsupported_keys_are_refused_by_name(kind, changes, message):
    with pytest.raises(InputError, match=message):
        ModelConfig.from_hf(small_config(kind, **changes))
