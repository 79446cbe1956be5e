"""Tables of every architecture against the gguf package's names and transformers' weights."""

import gguf
import pytest
from support.architectures import GGUF_KINDS, KINDS, random_weights, small_config

from quant.models import ARCHITECTURES, ModelConfig, expected_tensors, row_names, split_name

VARIANTS = {
    **{kind: (kind, {}) for kind in KINDS},
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3 with biases": ("qwen3", {"attention_bias": True}),
    "qwen3moe with biases": ("qwen3moe", {"attention_bias": True}),
    "deepseek2 with low-rank queries": ("deepseek2", {"q_lora_rank": 48}),
    "deepseek3 with plain queries": ("deepseek3", {"q_lora_rank": None}),
    "deepseek2 of experts alone": ("deepseek2", {"first_k_dense_replace": 0}),
}
every_variant = pytest.mark.parametrize(
    "kind, changes", [pytest.param(*variant, id=name) for name, variant in VARIANTS.items()]
)


def tensors(kind: str, **changes):
    return expected_tensors(ModelConfig.from_hf(small_config(kind, **changes)))


def test_every_architecture_is_tested():
    assert set(ARCHITECTURES) == {small_config(kind)["architectures"][0] for kind in KINDS}


@every_variant
def test_transformers_finds_every_tensor_and_misses_no_other(kind, changes, tmp_path):
    pytest.importorskip("transformers")
    from support.transformers_model import transformers_model

    config = small_config(kind, **changes)
    transformers_model(config, random_weights(config), tmp_path)


@pytest.mark.parametrize(
    "kind, changes", [pytest.param(*variant, id=name) for name, variant in VARIANTS.items() if variant[0] in GGUF_KINDS]
)
def test_gguf_names_match_the_gguf_package(kind, changes):
    architecture = ModelConfig.from_hf(small_config(kind)).architecture
    arch = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.gguf_arch)
    names = gguf.get_tensor_name_map(arch, 8)
    for want in tensors(kind, **changes).values():
        name = want.stored.name
        pattern, layer, expert = split_name(name)
        merged = name if expert is None else name.replace(f".experts.{expert}.", ".experts.")
        merged = merged.replace("e_score_correction_bias", "e_score_correction.bias")  # as its converter does
        # BLOOM's are those of a model saved without its head
        found = [
            names.get_name(spelled, try_suffixes=(".weight", ".bias"))
            for spelled in (merged, merged.removeprefix(architecture.prefix))
        ]
        assert want.gguf_name in found, (pattern, layer)


def test_experts_of_a_row_follow_each_other_and_know_their_place():
    stacks: dict[str, list[int]] = {}
    for want in tensors("qwen3moe").values():
        if want.expert is not None:
            assert want.gguf_name not in stacks or list(stacks)[-1] == want.gguf_name
            stacks.setdefault(want.gguf_name, []).append(want.expert)
    assert len(stacks) == 6 and all(places == list(range(8)) for places in stacks.values())


def test_dense_layers_come_first():
    names = list(tensors("deepseek2"))
    assert "model.layers.0.mlp.up_proj.weight" in names and "model.layers.1.mlp.up_proj.weight" not in names
    assert not any(name.startswith("model.layers.0.mlp.experts") for name in names)
    assert "model.layers.1.mlp.shared_experts.up_proj.weight" in names


def test_no_shared_experts_have_no_tensors():
    assert not any("shared" in name for name in tensors("deepseek2", n_shared_experts=None))


def test_shapes_of_latent_attention():
    shapes = {name.removeprefix("model.layers.0.self_attn."): want.shape for name, want in tensors("deepseek2").items()}
    assert shapes["q_proj.weight"] == (4 * (16 + 8), 64)
    assert shapes["kv_a_proj_with_mqa.weight"] == (32 + 8, 64)
    assert shapes["kv_b_proj.weight"] == (4 * (16 + 24), 32)
    assert shapes["o_proj.weight"] == (64, 4 * 24)


@pytest.mark.parametrize(
    "name, parts",
    [
        ("model.norm.weight", ("model.norm.weight", None, None)),
        ("model.layers.12.mlp.gate.weight", ("model.layers.{}.mlp.gate.weight", 12, None)),
        (
            "model.layers.3.mlp.experts.70.up_proj.weight",
            ("model.layers.{}.mlp.experts.{}.up_proj.weight", 3, 70),
        ),
    ],
    ids=["outside the layers", "a layer's", "an expert's"],
)
def test_names_split_into_row_layer_and_expert(name, parts):
    assert split_name(name) == parts


def test_every_name_splits_into_a_row_of_its_table():
    for kind in KINDS:
        config = ModelConfig.from_hf(small_config(kind))
        assert {split_name(name)[0] for name in expected_tensors(config)} == row_names(config)
