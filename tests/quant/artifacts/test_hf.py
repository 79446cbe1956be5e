"""Hugging Face directories: written ones load elsewhere, errors in broken ones are named."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.data import STORIES260K, needs_stories
from support.memory_source import MemorySource

from quant.artifacts import HFSource, hf_reader, make_artifact_job
from quant.artifacts.hf_writer import write_hf
from quant.errors import InputError
from quant.formats import dequantize
from quant.job import make_job
from quant.models import EMBEDDING, HEAD
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe

LINEAR = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture
def model_dir(tmp_path, byte_level_tokenizer):
    folder = tmp_path / "model"
    folder.mkdir()
    write_hf(MemorySource(byte_level_tokenizer), folder)
    return folder


@pytest.mark.parametrize("shard_bytes", [10**9, 100_000], ids=["one file", "shards"])
def test_float_model_comes_back(tmp_path, byte_level_tokenizer, shard_bytes):
    source = MemorySource(byte_level_tokenizer)
    write_hf(source, tmp_path, shard_bytes=shard_bytes)
    again = HFSource(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == (1 if shard_bytes == 10**9 else 13)
    assert again.tokenizer == source.tokenizer
    assert {key: again.config[key] for key in source.config} == source.config
    assert again.tensors == source.tensors
    assert all(np.array_equal(dequantize(again.read(name)), weight) for name, weight in source.weights.items())


@pytest.mark.parametrize("recipe", ["rtn-w8", "rtn-w4g128", "bf16"])
@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
def test_quantized_model_comes_back(tmp_path, recipe, tied):
    source = QuantizedSource(make_job(MemorySource(tie_word_embeddings=tied), get_recipe(recipe)))
    write_hf(source, tmp_path)
    again = HFSource(tmp_path)
    assert again.tensors == source.tensors
    for name in source.tensors:
        got, expected = again.read(name), source.read(name)
        assert got.parts.keys() == expected.parts.keys()
        for part, array in expected.parts.items():
            assert got.parts[part].dtype == array.dtype and np.array_equal(got.parts[part], array)


@pytest.mark.parametrize("recipe", ["bf16", "rtn-w8"])
@pytest.mark.parametrize("family", ["phi3", "gpt2", "bloom"])
def test_a_stack_is_read_once_for_all_its_members(tmp_path, monkeypatch, family, recipe):
    config = small_config(family)
    write_hf(QuantizedSource(make_job(ArraySource(config, random_weights(config)), get_recipe(recipe))), tmp_path)
    wholes, read_whole = [], HFSource._read_whole
    monkeypatch.setattr(HFSource, "_read_whole", lambda self, name: wholes.append(name) or read_whole(self, name))
    source = HFSource(tmp_path)
    first = {name: dequantize(source.read(name)) for name in source.tensors}
    in_file = {source._expected[name].stored.name for name in source.tensors}
    assert len(wholes) == len(in_file) < len(source.tensors)
    assert not source._stacks._kept, "nothing is held behind the last member"
    for name in reversed(source.tensors):  # in any other order the same bytes
        assert np.array_equal(dequantize(source.read(name)), first[name]), name


@pytest.mark.parametrize("recipe", ["rtn-w8", "rtn-w4g128"])
def test_compressed_tensors_unpacks_the_same_weights(tmp_path, recipe):
    """Their decompressor, on the file's own tensors and the config's own scheme, in float32."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    write_hf(QuantizedSource(make_job(MemorySource(), get_recipe(recipe))), tmp_path)
    config = QuantizationConfig.model_validate(
        json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    )
    (scheme,) = config.config_groups.values()
    stored = load_file(tmp_path / "model.safetensors")
    module = LINEAR.removesuffix("weight")
    state = {name.removeprefix(module): tensor for name, tensor in stored.items() if name.startswith(module)}
    state["weight_scale"] = state["weight_scale"].float()
    weight = BaseCompressor.get_value_from_registry(config.format).decompress(state, scheme)["weight"]
    assert np.array_equal(weight.numpy(), dequantize(HFSource(tmp_path).read(LINEAR)))


@pytest.mark.parametrize("recipe", ["rtn-w8", "rtn-w4g128", "bf16"])
def test_transformers_loads_it(tmp_path, byte_level_tokenizer, recipe):
    """The whole model through AutoModelForCausalLM: its logits are those of our dequantized weights, exactly."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")

    write_hf(QuantizedSource(make_job(MemorySource(byte_level_tokenizer), get_recipe(recipe))), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    source = HFSource(tmp_path)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**MemorySource().config))
    plain.load_state_dict({name: torch.from_numpy(dequantize(source.read(name))) for name in source.tensors})
    tokens = torch.arange(16)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, plain(tokens).logits)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("It's 2024").input_ids == tokenizer.backend_tokenizer.encode("It's 2024").ids


@needs_stories
def test_stories_match_the_library():
    source, expected = HFSource(STORIES260K), load_file(STORIES260K / "model.safetensors")
    assert source.tensors.keys() == expected.keys()
    assert all(np.array_equal(dequantize(source.read(name)), tensor) for name, tensor in expected.items())
    assert (source.tokenizer.bos_token_id, source.tokenizer.eos_token_id, source.tokenizer.add_bos) == (1, 2, True)


@pytest.mark.parametrize("kept", ["key", "named", "file"])
def test_a_chat_template_comes_from_wherever_it_is_kept(model_dir, kept):
    path = model_dir / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    if kept == "file":
        (model_dir / "chat_template.jinja").write_text("{{ messages }}")
    else:
        named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ messages }}"}]
        path.write_text(json.dumps(settings | {"chat_template": named if kept == "named" else "{{ messages }}"}))
    source = HFSource(model_dir)
    assert source.tokenizer.chat_template == "{{ messages }}"
    again = model_dir / "again"
    again.mkdir()
    write_hf(source, again)
    assert HFSource(again).tokenizer.chat_template == "{{ messages }}"


def test_a_chat_template_is_a_part_of_the_fingerprint(model_dir):
    before = HFSource(model_dir).fingerprint()
    (model_dir / "chat_template.jinja").write_text("{{ messages }}")
    assert HFSource(model_dir).fingerprint() != before


def test_tokenizer_settings_without_a_word_on_bos(model_dir, byte_level_tokenizer):
    (model_dir / "tokenizer_config.json").unlink()
    tokenizer = HFSource(model_dir).tokenizer
    assert not tokenizer.add_bos and tokenizer.bos_token_id is None


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "drop"}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    tensors = {name: torch.as_tensor(tensor) for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    "damage, words",
    [
        pytest.param(lambda d: (d / "config.json").unlink(), "config.json: cannot read", id="no config"),
        pytest.param(lambda d: (d / "config.json").write_text("{"), "config.json: not valid JSON", id="bad config"),
        pytest.param(lambda d: edit_config(d, hidden_size="drop"), "'hidden_size' is missing", id="missing key"),
        pytest.param(lambda d: edit_config(d, architectures=["X"]), "'X' is unknown; known: Llama", id="architecture"),
        pytest.param(
            lambda d: edit_config(d, vocab_size=321), r"\(320, 128\), config.json says \(321, 128\)", id="shape"
        ),
        pytest.param(lambda d: edit_config(d, num_hidden_layers=3), "layers.2.* is missing", id="missing layer"),
        pytest.param(lambda d: edit_config(d, num_hidden_layers=1), "it would be lost", id="a layer too many"),
        pytest.param(lambda d: edit_config(d, rope_scaling={"type": "x"}), "'x' is not supported", id="rope"),
        pytest.param(lambda d: edit_config(d, quantization_config={"quant_method": "awq"}), "of 'awq'", id="awq"),
        pytest.param(
            lambda d: edit_config(d, quantization_config=3), "quantization_config is 3, expected an object", id="number"
        ),
        pytest.param(lambda d: edit_tensors(d, lambda t: t.pop(LINEAR)), "down_proj.weight' is missing", id="tensor"),
        pytest.param(
            lambda d: edit_tensors(d, lambda t: t.update({LINEAR: t[LINEAR].to(torch.int8)})), "dtype I8", id="dtype"
        ),
        pytest.param(lambda d: (d / "model.safetensors").unlink(), "neither model.safetensors", id="no weights"),
        pytest.param(lambda d: (d / "tokenizer.json").write_text("{}"), "not a tokenizer", id="tokenizer"),
        pytest.param(lambda d: (d / "tokenizer_config.json").write_text("[]"), "expected a JSON object", id="settings"),
        pytest.param(
            lambda d: (d / "tokenizer_config.json").write_text('{"chat_template": 3}'), "text of a template", id="chat"
        ),
    ],
)
def test_broken_directories(model_dir, damage, words):
    damage(model_dir)
    with pytest.raises(InputError, match=words) as caught:
        HFSource(model_dir)
    assert str(model_dir) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [None, "x", -1, 0, 1.5, [], {}, True, 10**30, float("nan"), [None], {"a": []}], ids=repr
)
def test_any_config_value_is_taken_or_named(model_dir, value):
    """Whatever a key holds, the model opens and is written as GGUF, or one line says why not."""
    good = json.loads((model_dir / "config.json").read_text())
    for key in [*good, "rope_parameters", "quantization_config", "bos_token_id", "tie_word_embeddings"]:
        edit_config(model_dir, **{**good, key: value})
        try:
            write_artifact(HFSource(model_dir), model_dir.parent / "x.gguf")
        except InputError as error:
            assert "\n" not in str(error)
        (model_dir / "config.json").write_text(json.dumps(good))


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda t, m: t.pop(m + "weight_scale"), "weight_scale' is missing", id="no scale"),
        pytest.param(
            lambda t, m: t.update({m + "weight_shape": np.array([128, 999])}), r"weight_shape \(128, 999\)", id="shape"
        ),
        pytest.param(
            lambda t, m: t.update({m + "weight_shape": np.zeros(2)}),
            r"weight_shape\' is F64 \[2\], expected I64",
            id="float shape",
        ),
        pytest.param(
            lambda t, m: t.update({m + "weight_scale": np.ones((128, 1), np.float16)}),
            r"F16 \[128, 1\], expected F16 or BF16 or F32 \[128, 2\]",
            id="few scales",
        ),
        pytest.param(
            lambda t, m: t.update({m + "weight_scale": np.ones((128, 2), np.int32)}),
            r"I32 \[128, 2\], expected F16",
            id="integer scales",
        ),
    ],
)
def test_broken_packed_parts(tmp_path, change, words):
    write_hf(QuantizedSource(make_job(MemorySource(), get_recipe("rtn-w4g128"))), tmp_path)
    edit_tensors(tmp_path, lambda tensors: change(tensors, LINEAR.removesuffix("weight")))
    with pytest.raises(InputError, match=words):
        HFSource(tmp_path)


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param({"num_bits": 5}, "read here: pack-quantized integers of 2, 3, 4 or 8 bits", id="5 bits"),
        pytest.param(
            {"type": "float", "num_bits": 8, "strategy": "tensor", "group_size": None, "actorder": None},
            "of weights with type 'float', num_bits 8, strategy 'tensor'.*; for others take the original model",
            id="one scale per tensor",
        ),
        pytest.param({"type": "float"}, "read here: pack-quantized integers of 2, 3, 4 or 8 bits", id="float"),
    ],
)
def test_other_schemes(tmp_path, change, words):
    write_hf(QuantizedSource(make_job(MemorySource(), get_recipe("rtn-w4g128"))), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"].update(change)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=words):
        HFSource(tmp_path)


def test_block_formats_have_no_place(tmp_path):
    with pytest.raises(InputError, match=r"cannot hold q8_0 .*write a \.gguf file"):
        write_hf(QuantizedSource(make_job(MemorySource(), get_recipe("q8_0"))), tmp_path)


def test_fingerprint_follows_the_bytes(model_dir, tmp_path):
    first = HFSource(model_dir).fingerprint()
    shutil.copytree(model_dir, tmp_path / "copy")
    assert HFSource(tmp_path / "copy").fingerprint() == first
    edit_tensors(model_dir, lambda tensors: tensors[LINEAR].__setitem__((0, 0), 1.0))
    assert HFSource(model_dir).fingerprint() != first


def test_a_file_that_shrinks_after_opening(model_dir):
    source = HFSource(model_dir)
    with (model_dir / "model.safetensors").open("r+b") as file:
        file.truncate(3000)
    with pytest.raises(InputError, match="it ends at byte"):
        source.read("model.norm.weight")


def test_quantizing_a_packed_model_again_forgets_its_scheme(tmp_path):
    write_artifact(MemorySource(), tmp_path / "w8", recipe=get_recipe("rtn-w8"))
    write_artifact(HFSource(tmp_path / "w8"), tmp_path / "again", recipe=get_recipe("bf16"))
    assert "quantization_config" not in json.loads((tmp_path / "again" / "config.json").read_text())
    assert HFSource(tmp_path / "again").tensors[LINEAR].format == "bf16"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_float64_tensors_are_read_as_transformers_rounds_them(tmp_path, kind):
    """A model that was saved after `.double()`; a stack, a transposed matrix and shifted norms are among these."""
    transformers = pytest.importorskip("transformers")
    config = small_config(kind)
    write_hf(ArraySource(config, random_weights(config)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    noise = torch.Generator().manual_seed(0)
    wide = {name: t.double() * (1 + 1e-7 * torch.randn(t.shape, generator=noise)) for name, t in tensors.items()}
    save_file(wide, tmp_path / "model.safetensors", {"format": "pt"})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    source = HFSource(tmp_path)
    assert {info.format for info in source.tensors.values()} == {"f32"}
    (tmp_path / "again").mkdir()
    write_hf(source, tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again", dtype=torch.float32)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]) or "norm" in name, name
        assert torch.allclose(tensor, again.state_dict()[name], rtol=0, atol=2**-22), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_tied_head_with_numbers_of_its_own_is_used(tmp_path, dtype, caplog, monkeypatch):
    """As in transformers 5, with its warning; a copy of the embedding is no other head, in whatever dtype."""
    monkeypatch.setattr(hf_reader, "CHUNK_BYTES", 1000)
    write_hf(MemorySource(tie_word_embeddings=True), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    embedding = tensors[EMBEDDING].to(torch.bfloat16)
    tensors |= {EMBEDDING: embedding, HEAD: embedding.to(dtype, copy=True)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert HEAD not in HFSource(tmp_path).tensors and not caplog.text
    tensors[HEAD][-1, 3] += 1
    save_file(tensors, tmp_path / "model.safetensors")
    source = HFSource(tmp_path)
    assert np.array_equal(dequantize(source.read(HEAD)), tensors[HEAD].float().numpy())
    assert source.config["tie_word_embeddings"] is False and "lm_head.weight differs from the embedding" in caplog.text
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert torch.equal(theirs.lm_head.weight, tensors[HEAD].float())


def test_a_tied_head_of_another_shape_or_type_is_named(tmp_path):
    """It can be no copy of the embedding."""
    write_hf(MemorySource(tie_word_embeddings=True), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    rows, width = tensors[EMBEDDING].shape
    save_file(tensors | {HEAD: torch.zeros(rows + 1, width)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=rf"'lm_head.weight' has shape \({rows + 1}, {width}\), config\.json says"):
        HFSource(tmp_path)
    save_file(tensors | {HEAD: torch.zeros(rows, width, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"'lm_head.weight' has dtype I32"):
        HFSource(tmp_path)


def test_weights_next_to_an_index_of_others_are_refused(tmp_path):
    """transformers reads the single file, and the index may be newer."""
    for folder in ("shards", "whole"):
        (tmp_path / folder).mkdir()
    write_hf(MemorySource(), tmp_path / "shards", shard_bytes=100_000)
    write_hf(MemorySource(seed=1), tmp_path / "whole")
    assert HFSource(tmp_path / "shards")
    shutil.copy(tmp_path / "whole" / "model.safetensors", tmp_path / "shards")
    with pytest.raises(
        InputError, match=r"model\.safetensors and model\.safetensors\.index\.json name different weights"
    ):
        HFSource(tmp_path / "shards")


@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.json"])
def test_a_tokenizer_in_another_file_alone_is_named_before_any_work(tmp_path, name, caplog):
    """GGUF without one is of no use to llama.cpp."""
    write_hf(MemorySource(), tmp_path)
    assert HFSource(tmp_path).tokenizer is None and not caplog.text
    (tmp_path / name).write_text("{}")
    source = HFSource(tmp_path)
    words = rf"tokenizer\.json is missing, and {name} is not read; make it with transformers: AutoTokenizer"
    assert re.search(words, caplog.text)
    with pytest.raises(InputError, match=words):
        make_artifact_job(source, get_recipe("q8_0"), tmp_path / "m.gguf")
    make_artifact_job(source, get_recipe("bf16"), tmp_path / "out")


def test_a_llama_without_its_head_or_prefix_and_with_old_buffers(tmp_path):
    """As a model saved without the class for language modelling names its tensors, and old ones their buffers."""
    write_hf(MemorySource(tie_word_embeddings=True), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    before = {name: dequantize(HFSource(tmp_path).read(name)) for name in HFSource(tmp_path).tensors}
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    buffers = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "masked_bias")
    bare |= {f"layers.0.self_attn.{name}": torch.zeros(2) for name in buffers}
    save_file(bare | {"embed_tokens.position_ids": torch.zeros(2)}, tmp_path / "model.safetensors")
    source = HFSource(tmp_path)
    assert before.keys() == source.tensors.keys()
    assert all(np.array_equal(dequantize(source.read(name)), before[name]) for name in before)


def test_files_that_add_tokens_are_a_part_of_the_fingerprint(model_dir):
    before = HFSource(model_dir).fingerprint()
    (model_dir / "added_tokens.json").write_text("{}")
    assert HFSource(model_dir).fingerprint() == before
    (model_dir / "added_tokens.json").write_text('{"<new>": 310}')
    one = HFSource(model_dir).fingerprint()
    (model_dir / "added_tokens.json").write_text('{"<other>": 310}')
    assert len({before, one, HFSource(model_dir).fingerprint()}) == 3
