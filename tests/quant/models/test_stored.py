"""Places of tensors that a checkpoint stacks, transposes and shifts, by hand."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.artifacts.hf_reader import HFSource
from quant.artifacts.hf_stored import transposed
from quant.artifacts.hf_writer import write_hf
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.models.stored import rows_of_stack


def test_rows_one_tensor_below_the_other():
    assert [rows.tolist() for rows in rows_of_stack((4, 2, 2))] == [[0, 1, 2, 3], [4, 5], [6, 7]]


def test_rows_of_each_head_together():
    rows = rows_of_stack((4, 4, 4), num_heads=2)  # q0 k0 v0 of two rows each, then q1 k1 v1
    assert [part.tolist() for part in rows] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_a_matrix_the_other_way_round(fmt):
    weight = np.arange(15, dtype=np.float32).reshape(3, 5)
    turned = transposed(get_format(fmt).quantize_ref(weight))
    assert turned.shape == (5, 3) and np.array_equal(dequantize(turned), weight.T)


def test_gpt2_as_its_authors_named_it(tmp_path):
    """Without the prefix of the model with a head, and with the causal mask that each layer held."""
    config = small_config("gpt2")
    weights = random_weights(config)
    (tmp_path / "ours").mkdir()
    write_hf(ArraySource(config, weights), tmp_path / "ours")
    arrays = load_file(tmp_path / "ours" / "model.safetensors")
    assert arrays["transformer.h.0.attn.c_attn.weight"].shape == (64, 3 * 64)
    assert np.array_equal(arrays["transformer.h.1.mlp.c_fc.weight"].T, weights["model.layers.1.mlp.fc1.weight"])
    bare = {name.removeprefix("transformer."): array for name, array in arrays.items()}
    bare |= {f"h.{layer}.attn.bias": np.ones((1, 1, 8, 8), np.float32) for layer in range(2)}
    (tmp_path / "theirs").mkdir()
    save_file(bare, tmp_path / "theirs" / "model.safetensors")
    (tmp_path / "theirs" / "config.json").write_text((tmp_path / "ours" / "config.json").read_text())
    source = HFSource(tmp_path / "theirs")
    assert source.tensors.keys() == weights.keys()
    for name, weight in weights.items():
        assert np.array_equal(dequantize(source.read(name)), weight), name


def test_gemma_keeps_norms_less_one(tmp_path):
    config = small_config("gemma2")
    weights = random_weights(config)
    write_hf(ArraySource(config, weights), tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    kept = arrays["model.layers.2.pre_feedforward_layernorm.weight"]
    assert np.array_equal(kept, weights["model.layers.2.post_attention_layernorm.weight"] - np.float32(1))
    again = HFSource(tmp_path)
    for name, weight in weights.items():
        assert np.array_equal(dequantize(again.read(name)), weight), name


def test_a_tensor_of_another_shape_is_named_as_in_the_file(tmp_path):
    config = small_config("gpt2")
    write_hf(ArraySource(config, random_weights(config)), tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    arrays["transformer.h.0.attn.c_attn.weight"] = arrays["transformer.h.0.attn.c_attn.weight"].T.copy()
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"c_attn.weight' has shape \(192, 64\), config.json says \(64, 192\)"):
        HFSource(tmp_path)
