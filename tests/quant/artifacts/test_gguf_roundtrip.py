"""Written GGUF files, read by us, by the gguf package and by llama.cpp."""

import gguf
import numpy as np
import pytest
from support.architectures import llama3_scaling, random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts import gguf_writer, read_manifest
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError
from quant.formats import FORMATS, dequantize
from quant.job import make_job
from quant.models import ModelConfig
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.recipes.policies import Uniform
from quant.recipes.recipe import Recipe

LINEAR = {"rope_type": "linear", "factor": 2.0}
GGUF_FORMATS = [name for name, fmt in FORMATS.items() if fmt.gguf_type is not None and fmt.writes]


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"mlp_bias": True}],
    ids=["head", "tied", "attention biases", "mlp biases"],
)
@pytest.mark.parametrize("scaling", [None, LINEAR, llama3_scaling()], ids=["plain rope", "linear", "llama3"])
def test_config_and_weights_come_back(tmp_path, scaling, changes):
    source = MemorySource(rope_scaling=scaling, **changes)
    write_gguf(source, tmp_path / "x.gguf", name="x")
    again = GGUFSource(tmp_path / "x.gguf")
    assert {key: again.config[key] for key in source.config} == source.config
    assert again.tokenizer is None and list(again.tensors) == list(source.tensors)
    for name, weight in source.weights.items():
        assert again.tensors[name] == source.tensors[name]
        assert np.array_equal(dequantize(again.read(name)), weight), name


def divisors(source):
    rope = ModelConfig.of(source).rope
    return rope.frequency_divisors(ModelConfig.of(source).rope_dim)


@pytest.mark.parametrize("high", [8.0, 4.0])
def test_factors_of_any_llama3_scaling_come_back(tmp_path, high):
    source = MemorySource(rope_scaling=llama3_scaling() | {"high_freq_factor": high})
    write_gguf(source, tmp_path / "x.gguf", name="x")
    again = GGUFSource(tmp_path / "x.gguf")
    assert np.array_equal(divisors(again), divisors(source)) and not np.array_equal(divisors(source), [1.0])
    write_gguf(again, tmp_path / "y.gguf", name="x")
    assert np.array_equal(divisors(GGUFSource(tmp_path / "y.gguf")), divisors(source))


@pytest.mark.parametrize(
    "keys, scaling",
    [
        ({"rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.type": "linear"}, None),
        ({"rope.scaling.factor": 0.0}, None),
    ],
    ids=str,
)
def test_linear_scaling_in_the_words_of_2023(tmp_path, monkeypatch, keys, scaling):
    """As llama.cpp reads them: a factor without a type is linear."""
    written = gguf_writer.metadata_from_config

    def with_keys(config):
        return written(config) | {f"llama.{key}": value for key, value in keys.items()}

    monkeypatch.setattr(gguf_writer, "metadata_from_config", with_keys)
    write_gguf(MemorySource(), tmp_path / "x.gguf", name="x")
    assert GGUFSource(tmp_path / "x.gguf").config["rope_scaling"] == scaling


@pytest.mark.parametrize("fmt", GGUF_FORMATS)
def test_every_format_dequantizes_like_the_gguf_package(tmp_path, fmt):
    """K-quants need rows of 256; the file has llama.cpp's row order, `read` gives Hugging Face's."""
    source = MemorySource(hidden_size=256, intermediate_size=256, num_hidden_layers=1, vocab_size=32, head_dim=64)
    quantized = QuantizedSource(make_job(source, Recipe("x", "gguf", "rtn", Uniform(fmt))))
    write_gguf(quantized, tmp_path / "x.gguf", name="x")
    again = GGUFSource(tmp_path / "x.gguf")
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    for name, gguf_name in {
        "model.layers.0.mlp.up_proj.weight": "blk.0.ffn_up.weight",
        "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    }.items():
        tensor = theirs[gguf_name]
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(source.weights[name].shape)
        if "q_proj" in name:  # the converter's permutation, undone in its own words
            heads = source.config["num_attention_heads"]
            expected = expected.reshape(heads, -1, 2, 256).swapaxes(1, 2).reshape(expected.shape)
        assert again.tensors[name].format == fmt
        assert np.array_equal(dequantize(again.read(name)), expected)
        assert np.array_equal(dequantize(again.read(name)), dequantize(quantized.read(name)))
    assert theirs["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32


def test_norms_of_other_float_formats_become_f32(tmp_path):
    source = QuantizedSource(make_job(MemorySource(), get_recipe("bf16")))  # a Hugging Face recipe: bf16 norms
    assert source.tensors["model.norm.weight"].format == "bf16"
    with pytest.raises(ValueError, match="use F32Vectors"):
        write_gguf(source, tmp_path / "x.gguf", name="x")
    write_artifact(source, tmp_path / "x.gguf")
    again = GGUFSource(tmp_path / "x.gguf")
    assert again.tensors["model.norm.weight"].format == "f32"
    assert read_manifest(tmp_path / "x.gguf").size.size_bytes == sum(info.size_bytes for info in again.tensors.values())
    assert np.array_equal(dequantize(again.read("model.norm.weight")), dequantize(source.read("model.norm.weight")))


def test_format_without_a_gguf_type(tmp_path):
    source = F32Vectors(QuantizedSource(make_job(MemorySource(), get_recipe("rtn-w4g128"))))
    with pytest.raises(InputError, match="GGUF has no type for w4g128"):
        write_gguf(source, tmp_path / "x.gguf", name="x")
    assert list(tmp_path.iterdir()) == []


def test_file_of_another_kind_is_not_written_over(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_text("my notes")
    with pytest.raises(InputError, match="is something else"):
        write_gguf(MemorySource(), path, name="x")
    assert path.read_text() == "my notes"


def test_a_source_that_fails_half_way_leaves_nothing(tmp_path):
    class Failing(MemorySource):
        def read(self, name):
            if name == "model.norm.weight":
                raise InputError("gone")
            return super().read(name)

    with pytest.raises(InputError, match="gone"):
        write_gguf(Failing(), tmp_path / "x.gguf", name="x")
    assert list(tmp_path.iterdir()) == []


def drop_key(key):
    return lambda keys, tensors: keys.pop(key)


def drop_tensor(name):
    return lambda keys, tensors: tensors.pop(name)


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(drop_key("llama.embedding_length"), "'llama.embedding_length' is missing", id="missing key"),
        pytest.param(lambda k, t: k.update({"llama.block_count": "2"}), "must be int, got '2'", id="key of other type"),
        pytest.param(drop_tensor("blk.1.ffn_up.weight"), r"'blk\.1\.ffn_up\.weight' is missing", id="missing tensor"),
        pytest.param(drop_tensor("token_embd.weight"), r"'token_embd\.weight' is missing", id="no embedding"),
        pytest.param(
            lambda k, t: t.update({"blk.0.attn_q_norm.weight": np.ones(32, np.float32)}), "none of this", id="unknown"
        ),
        pytest.param(
            lambda k, t: t.update({"output_norm.weight": np.ones(64, np.float32)}), r"has shape \(64,\)", id="shape"
        ),
        pytest.param(
            lambda k, t: t.update({"rope_freqs.weight": np.ones(3, np.float32)}), "3 factors, expected 16", id="factors"
        ),
        pytest.param(
            lambda k, t: k.update({"llama.rope.scaling.type": "longrope"}),
            "'longrope' is not supported; known: none, linear, yarn",
            id="longrope",
        ),
        pytest.param(
            lambda k, t: k.update({"llama.rope.scaling.type": "yarn"}),
            r"'llama\.rope\.scaling\.factor' is missing",
            id="yarn of what",
        ),
        pytest.param(
            lambda k, t: k.update({"llama.rope.scaling.attn_factor": 1.5}),
            "rope.scaling.attn_factor is 1.5 next to rope.scaling.type linear, known: 1, and others with yarn",
            id="a magnitude without yarn",
        ),
        pytest.param(lambda k, t: k.update({"llama.rope.freq_base": -1.0}), "rope_theta is -1.0", id="negative theta"),
        pytest.param(
            lambda k, t: k.update({"tokenizer.ggml.model": "rwkv"}),
            r"'rwkv' \(a trie of bytes\), known: llama, gpt2",
            id="tokenizer kind",
        ),
    ],
)
def test_models_that_are_not_whole(tmp_path, change, words):
    """Valid GGUF files made with the gguf package, of which one thing is wrong."""
    whole = tmp_path / "whole.gguf"
    write_gguf(MemorySource(), whole, name="x")
    reader = gguf.GGUFReader(whole)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    change(keys, tensors)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", keys.pop("general.architecture"))
    for key, value in keys.items():
        {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)](key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match=words) as caught:
        GGUFSource(tmp_path / "x.gguf")
    assert "x.gguf" in str(caught.value)


def test_unknown_architecture(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.ones((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="is 'mamba'; known: llama"):
        GGUFSource(tmp_path / "x.gguf")


def test_numbers_in_lists_that_all_layers_have(tmp_path, monkeypatch):
    """Some converters write a number of heads for each layer."""
    written = gguf_writer.metadata_from_config
    heads = "llama.attention.head_count_kv"
    monkeypatch.setattr(gguf_writer, "metadata_from_config", lambda config: written(config) | {heads: [2, 2]})
    write_gguf(MemorySource(), tmp_path / "x.gguf", name="x")
    assert GGUFSource(tmp_path / "x.gguf").config["num_key_value_heads"] == 2
    monkeypatch.setattr(gguf_writer, "metadata_from_config", lambda config: written(config) | {heads: [2, 1]})
    write_gguf(MemorySource(), tmp_path / "y.gguf", name="x")
    with pytest.raises(InputError, match=rf"key '{heads}' differs between layers \(\[2, 1\]\)"):
        GGUFSource(tmp_path / "y.gguf")


@pytest.mark.parametrize("kind", ["qwen3moe", "mixtral"])
def test_a_mixture_of_one_expert_comes_back(tmp_path, kind):
    counts = {"num_experts": 1, "num_local_experts": 1, "num_experts_per_tok": 1}
    known = small_config(kind)
    config = small_config(kind, **{key: value for key, value in counts.items() if key in known})
    source = ArraySource(config, random_weights(config))
    write_gguf(F32Vectors(source), tmp_path / "x.gguf", name="x")
    again = GGUFSource(tmp_path / "x.gguf")
    for name in source.tensors:
        assert np.array_equal(dequantize(again.read(name)), dequantize(source.read(name))), name
