"""Folded scales leave the float function as it was, in every architecture that runs, whatever the scales are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.runtime import load_model
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.methods import Layer
from quant.methods.folding import Fold, FoldedLayer, find_folds
from quant.models import ModelConfig, split_name

TOKENS = torch.randint(160, (2, 40), generator=torch.Generator().manual_seed(1))


def layer_of(config: dict, weights: dict[str, np.ndarray], number: int, vectors: str = "f32") -> Layer:
    """All matrices of a decoder layer as if each were to become w8a8."""
    names = [name for name in weights if split_name(name)[1] == number]
    matrices = {name: weights[name] for name in names if weights[name].ndim == 2}
    norms = {name: weights[name] for name in names if weights[name].ndim == 1}
    formats = dict.fromkeys(matrices, "w8a8") | dict.fromkeys(norms, vectors)
    return Layer(matrices, formats, norms, ModelConfig.from_hf(config))


def fold_at_random(layer: Layer, seed: int) -> FoldedLayer:
    rng, folded = np.random.default_rng(seed), FoldedLayer(layer)
    for fold in find_folds(layer):
        scale = np.exp(rng.uniform(-3, 3, folded.num_channels(fold))).astype(np.float32)
        read = np.zeros(len(scale), dtype=bool)
        read[fold.channel_of] = True
        folded.apply(fold, np.where(read, scale, 1).astype(np.float32))
    return folded


def all_folded(config: dict, weights: dict[str, np.ndarray], vectors: str = "f32") -> dict[str, np.ndarray]:
    made = dict(weights)
    for number in range(ModelConfig.from_hf(config).num_layers):
        folded = fold_at_random(layer_of(config, weights, number, vectors), seed=number)
        made |= folded.weights | {name: dequantize(vector) for name, vector in folded.vectors.items()}
    return made


def logits_of(config: dict, weights: dict[str, np.ndarray], folder: Path) -> torch.Tensor:
    """By our runtime; latent attention, which it has not, by transformers."""
    if "kv_lora_rank" not in config:
        return load_model(ArraySource(config, weights), impl="reference")(TOKENS)
    pytest.importorskip("transformers", reason="transformers is not installed")
    from support import transformers_model

    folder.mkdir()
    return transformers_model.logits_of(transformers_model.transformers_model(config, weights, folder), TOKENS)


VARIANTS = [
    pytest.param("llama", {}, "f32", id="llama, grouped heads"),
    pytest.param("llama", {}, "bf16", id="llama, norms in bf16"),
    pytest.param("llama", {"num_key_value_heads": 4}, "f32", id="llama, a kv head a query head"),
    pytest.param("llama", {"num_key_value_heads": 1}, "bf16", id="llama, one kv head"),
    pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, "f32", id="llama, biases"),
    pytest.param("gemma2", {}, "f32", id="gemma2"),
    pytest.param("gemma3", {}, "f32", id="gemma3"),
    pytest.param("phi3", {}, "bf16", id="phi3"),
    pytest.param("gpt2", {}, "f32", id="gpt2, norms with biases"),
    pytest.param("bloom", {}, "f32", id="bloom"),
    pytest.param("qwen2", {}, "f32", id="qwen2"),
    pytest.param("qwen3", {}, "bf16", id="qwen3"),
    pytest.param("qwen3moe", {}, "bf16", id="qwen3moe"),
    pytest.param("deepseek2", {}, "f32", id="deepseek2"),
    pytest.param("deepseek2", {"q_lora_rank": 48}, "bf16", id="deepseek2, low-rank queries"),
]


@pytest.mark.parametrize("kind, changes, vectors", VARIANTS)
def test_the_function_is_unchanged(kind, changes, vectors, tmp_path):
    """Norms in bf16 as well: the readers compensate for the changes by their rounding. Biases cannot be made up for."""
    config = small_config(kind, **changes)
    weights = random_weights(config)
    folded = all_folded(config, weights, vectors)
    expected = logits_of(config, weights, tmp_path / "before")
    spread = float(expected.std())
    # Every product of the model is rounded again, relative 2**-24; the deepest path has a few dozen of them.
    assert_close(logits_of(config, folded, tmp_path / "after"), expected, atol=64 * 2**-24 * 64 * spread)
    layers = [name for name in weights if split_name(name)[1] is not None and weights[name].ndim == 2]
    layers = [name for name in layers if not name.endswith("mlp.fc2.weight")]
    assert not any(np.array_equal(folded[name], weights[name]) for name in layers)


@pytest.mark.parametrize("kind", KINDS)
def test_every_linear_of_a_layer_is_reached(kind):
    config = small_config(kind)
    layer = layer_of(config, random_weights(config), 1)
    folds = find_folds(layer)
    readers = {reader for fold in folds for reader in fold.readers}
    # Behind a function that is not linear nothing can be folded.
    assert readers == {name for name in layer.weights if not name.endswith("mlp.fc2.weight")}
    norms_only = find_folds(layer, pairs=False)
    assert all(fold.source in layer.vectors for fold in norms_only) and len(norms_only) < len(folds)


def test_the_layer_itself_is_not_changed():
    config = small_config("llama")
    layer = layer_of(config, random_weights(config), 0)
    before = {name: array.copy() for name, array in (*layer.weights.items(), *layer.vectors.items())}
    fold_at_random(layer, 0)
    for name, array in (*layer.weights.items(), *layer.vectors.items()):
        np.testing.assert_array_equal(array, before[name])


def test_a_reader_of_another_method_is_refused():
    config = small_config("llama")
    layer = layer_of(config, random_weights(config), 0)
    name = "model.layers.0.self_attn.v_proj.weight"
    others = {other: weight for other, weight in layer.weights.items() if other != name}
    with pytest.raises(InputError, match=rf"has to change {name}, which .* method, or the option pairs: false"):
        find_folds(Layer(others, layer.formats, layer.vectors, layer.config))
    with pytest.raises(InputError, match=r"input_layernorm.weight and what reads it has to change .* one method$"):
        find_folds(Layer(others, layer.formats, layer.vectors, layer.config), pairs=False)


def test_readers_in_floats_need_no_scale():
    config = small_config("llama")
    layer = layer_of(config, random_weights(config), 0)
    formats = {name: "bf16" if "mlp" in name else fmt for name, fmt in layer.formats.items()}
    folds = find_folds(Layer(layer.weights, formats, layer.vectors, layer.config))
    assert not any("mlp" in fold.source or "post_attention" in fold.source for fold in folds)


def test_tensors_outside_the_layers_have_no_folds():
    config = small_config("llama")
    head = {"lm_head.weight": np.ones((8, 64), np.float32)}
    layer = Layer(head, {"lm_head.weight": "w8a8"}, config=ModelConfig.from_hf(config))
    assert find_folds(layer) == []
    assert find_folds(Layer(head, {"lm_head.weight": "w8a8"})) == []


def test_a_norm_of_zeros_stays_zero():
    config = small_config("llama")
    weights = random_weights(config)
    weights["model.layers.0.input_layernorm.weight"][:3] = 0
    folded = fold_at_random(layer_of(config, weights, 0, "bf16"), 0)
    norm = dequantize(folded.vectors["model.layers.0.input_layernorm.weight"])
    assert (norm[:3] == 0).all()
    assert all(np.isfinite(weight).all() for weight in folded.weights.values())
    assert get_format("bf16").name == folded.vectors["model.layers.0.input_layernorm.weight"].format


def test_a_channel_that_several_features_read_has_the_largest_of_them():
    fold = Fold("a.weight", ("b.weight",), channel_of=np.array([0, 0, 1, 3]))
    assert fold.per_channel(np.array([1, 5, 2, 4], dtype=np.float32), 4).tolist() == [5, 2, 0, 4]
