"""The table of tensors against the gguf package and transformers."""

from itertools import chain

import gguf
import pytest
import torch
from support.architectures import KINDS, small_config

from quant.models import HEAD, ModelConfig, expected_tensors, names_by_layer

BIASES = {"attention_bias": True, "mlp_bias": True}


def tensors(**changes):
    return expected_tensors(ModelConfig.from_hf(small_config(**changes)))


def test_gguf_names_match_the_gguf_package():
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, want in tensors(**BIASES).items():
        assert names.get_name(name, try_suffixes=(".weight", ".bias")) == want.gguf_name


@pytest.mark.parametrize("changes", [{}, {"attention_bias": True}, {"mlp_bias": True}], ids=["plain", "attn", "mlp"])
def test_shapes_match_transformers(changes):
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small_config(**changes)))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert {name: want.shape for name, want in tensors(**changes).items()} == shapes


def test_file_order_is_embedding_layers_norm_head():
    order = list(tensors())
    assert order[0] == "model.embed_tokens.weight" and order[-2:] == ["model.norm.weight", HEAD]
    assert [int(name.split(".")[2]) for name in order[1:-2]] == [0] * 9 + [1] * 9


def test_tied_models_have_no_head():
    assert HEAD not in tensors(tie_word_embeddings=True)


def test_heads_match_rotated_projections():
    assert {name: want.heads for name, want in tensors(num_hidden_layers=1, **BIASES).items() if want.heads} == {
        f"model.layers.0.self_attn.{name}_proj.{kind}": heads
        for name, heads in (("q", 4), ("k", 2))
        for kind in ("weight", "bias")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_all_layers_match_all_tensors(kind):
    config = ModelConfig.from_hf(small_config(kind))
    names = names_by_layer(config)
    assert list(names) == [None, *range(config.num_layers)]
    assert set(names[None]) == {name for name in expected_tensors(config) if "layers" not in name.split(".")}
    assert sorted(chain(*names.values())) == sorted(expected_tensors(config))
