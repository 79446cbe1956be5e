"""Importance matrices in both layouts of llama.cpp: golden bytes, the way there and back, and files that are wrong."""

import struct

import gguf
import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact

from quant.artifacts.imatrix import read_imatrix, write_imatrix
from quant.artifacts.imatrix_file import read_imatrix_file
from quant.errors import InputError
from quant.models import ModelConfig, expected_tensors
from quant.recipes.roles import Role, place_of

LAYOUTS = ("x.gguf", "x.dat")
DOWN = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="module", params=["llama", "qwen3moe", "deepseek2", "phi3", "gpt2"])
def source(request):
    config = small_config(request.param)
    return ArraySource(config, random_weights(config))


@pytest.fixture(scope="module")
def llama():
    config = small_config("llama")
    return ArraySource(config, random_weights(config))


def importance_of(source, seed: int = 0) -> dict[str, np.ndarray]:
    """Random importance of every linear of the decoder layers."""
    rng = np.random.default_rng(seed)
    linears = [name for name, info in source.tensors.items() if len(info.shape) > 1]
    places = {name: place_of(name) for name in linears}
    linears = [name for name in linears if places[name].layer is not None and places[name].role is not Role.ROUTER]
    made = {name: rng.lognormal(size=source.tensors[name].shape[-1]).astype(np.float32) for name in linears}
    expected = expected_tensors(ModelConfig.of(source))
    first = {expected[name].gguf_name: name for name in reversed(linears)}  # stacked tensors have one input
    return {
        name: made[first[expected[name].gguf_name]] if expected[name].gguf_rows else means
        for name, means in made.items()
    }


def legacy(entries: dict[str, tuple[int, list[float]]], tail: bytes = b"") -> bytes:
    data = struct.pack("<i", len(entries))
    for name, (calls, values) in entries.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(values))
        data += struct.pack(f"<{len(values)}f", *values)
    return data + tail


@pytest.mark.parametrize("file", LAYOUTS)
def test_there_and_back(tmp_path, source, file):
    importance = importance_of(source)
    write_imatrix(tmp_path / file, importance, source, 5000, ["stories.txt"])
    again = read_imatrix(tmp_path / file, source)
    assert list(again) == list(importance)
    for name, means in importance.items():  # times a count and divided by it, in float32
        assert np.abs(again[name] / means - 1).max() <= 2**-22, name
    assert read_imatrix_file(tmp_path / file).datasets == ("stories.txt",)
    assert read_imatrix_file(tmp_path / file).num_chunks == 10


def test_bytes_of_the_older_layout(tmp_path, llama):
    """Means times the calls, which are chunks of 512 tokens; then the chunks and one dataset."""
    importance = {DOWN: np.full(96, 0.5, dtype=np.float32)}
    write_imatrix(tmp_path / "x.dat", importance, llama, 1025, ["a", "b.txt"])
    tail = struct.pack("<ii", 3, 5) + b"b.txt"
    assert (tmp_path / "x.dat").read_bytes() == legacy({"blk.0.ffn_down.weight": (3, [1.5] * 96)}, tail)


def test_keys_and_tensors_of_the_gguf_layout(tmp_path, source):
    importance = importance_of(source)
    write_imatrix(tmp_path / "x.gguf", importance, source, 1024, ["a", "b"])
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert keys == {
        "general.type": "imatrix",
        "imatrix.datasets": ["a", "b"],
        "imatrix.chunk_count": 2,
        "imatrix.chunk_size": 512,
    }
    shapes = {tensor.name: tensor.shape.tolist() for tensor in reader.tensors}  # innermost first
    assert all(tensor.tensor_type == gguf.GGMLQuantizationType.F32 for tensor in reader.tensors)
    if "model.layers.1.mlp.experts.0.down_proj.weight" in importance:
        num_experts = sum("layers.1.mlp.experts" in name for name in importance) // 3
        assert shapes["blk.1.ffn_down_exps.weight.in_sum2"] == [32, num_experts]
        assert shapes["blk.1.ffn_down_exps.weight.counts"] == [1, num_experts]
    q = expected_tensors(ModelConfig.of(source))["model.layers.0.self_attn.q_proj.weight"].gguf_name
    assert shapes[f"{q}.in_sum2"] == [64] and shapes[f"{q}.counts"] == [1]


def test_experts_have_their_own_counts(tmp_path):
    config = small_config("qwen3moe")
    source = ArraySource(config, random_weights(config))
    importance = importance_of(source)
    num_tokens = {name: 100 for name in importance}
    dead = "model.layers.0.mlp.experts.5.up_proj.weight"
    num_tokens[dead] = 0
    write_imatrix(tmp_path / "x.gguf", importance, source, num_tokens)
    again = read_imatrix(tmp_path / "x.gguf", source)
    assert np.array_equal(again[dead], np.ones(64))  # as in llama-quantize for experts that no token reached
    other = dead.replace(".5.", ".4.")
    assert np.abs(again[other] / importance[other] - 1).max() <= 2**-22
    counts = read_imatrix_file(tmp_path / "x.gguf").entries["blk.0.ffn_up_exps.weight"].counts
    assert counts.tolist() == [100] * 5 + [0] + [100] * 2


def test_old_files_may_end_after_the_entries(tmp_path):
    entry = {"blk.0.ffn_down.weight": (4, [2.0, 8.0])}
    for tail, chunks, datasets in ((b"", 0, ()), (struct.pack("<i", 7), 7, ()), (struct.pack("<ii", 7, 0), 7, ())):
        (tmp_path / "x.dat").write_bytes(legacy(entry, tail))
        file = read_imatrix_file(tmp_path / "x.dat")
        assert (file.num_chunks, file.datasets) == (chunks, datasets)
        assert file.entries["blk.0.ffn_down.weight"].means.tolist() == [[0.5, 2.0]]
        assert file.entries["blk.0.ffn_down.weight"].counts.tolist() == [4 * 512]  # tokens: a call is a chunk


@pytest.mark.parametrize("file", LAYOUTS)
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"num_hidden_layers": 1}, r"blk\.1\.attn_k\.weight is no tensor of arrays; the matrix is of another model"),
        ({"num_hidden_layers": 3}, r"lacks 7 linears of arrays \(first: model\.layers\.2\.self_attn\.q_proj\.weight\)"),
        ({"intermediate_size": 64}, r"blk\.0\.ffn_down\.weight has 96 values, arrays needs 1 x 64"),
    ],
    ids=["more layers", "fewer layers", "another size"],
)
def test_matrix_of_another_model(tmp_path, llama, file, changes, words):
    write_imatrix(tmp_path / file, importance_of(llama), llama, 512)
    config = small_config("llama", **changes)
    with pytest.raises(InputError, match=words) as caught:
        read_imatrix(tmp_path / file, ArraySource(config, random_weights(config)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data, words",
    [
        pytest.param(b"", "entry count", id="empty"),
        pytest.param(b"some notes of mine", "length of name|entry count|name of entry", id="text"),
        pytest.param(struct.pack("<i", -3), "entry count is -3", id="negative"),
        pytest.param(legacy({"a": (1, [1.0, 2.0])})[:-1], "values of a at byte", id="truncated"),
        pytest.param(legacy({"a": (1, [float("nan")])}), "negative or no number", id="NaN"),
        pytest.param(legacy({"a": (1, [-1.0])}), "negative or no number", id="negative mean"),
        pytest.param(struct.pack("<ii", 1, -1), "length of name of entry 0 is -1", id="negative length"),
    ],
)
def test_other_files_are_refused(tmp_path, data, words):
    (tmp_path / "x.dat").write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        read_imatrix_file(tmp_path / "x.dat")
    assert "\n" not in str(caught.value)


def test_a_model_is_no_imatrix(tmp_path, llama):
    write_artifact(llama, tmp_path / "m.gguf")
    with pytest.raises(InputError, match=r"general\.type 'model', expected 'imatrix'"):
        read_imatrix(tmp_path / "m.gguf", llama)
    with pytest.raises(InputError, match="is something else"):
        write_imatrix(tmp_path / "m.gguf", importance_of(llama), llama, 512)
    with pytest.raises(InputError, match="no such file"):
        read_imatrix(tmp_path / "none.gguf", llama)


def test_a_stack_needs_all_its_experts(tmp_path):
    config = small_config("qwen3moe")
    source = ArraySource(config, random_weights(config))
    importance = importance_of(source)
    missing = "model.layers.1.mlp.experts.2.gate_proj.weight"
    del importance[missing]
    with pytest.raises(InputError, match=rf"all its experts, {missing} has none"):
        write_imatrix(tmp_path / "x.gguf", importance, source, 512)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", LAYOUTS)
def test_an_older_matrix_is_written_over(tmp_path, llama, file):
    for seed in (0, 1):
        write_imatrix(tmp_path / file, importance_of(llama, seed), llama, 512)
    assert np.abs(read_imatrix(tmp_path / file, llama)[DOWN] / importance_of(llama, 1)[DOWN] - 1).max() <= 2**-22
    assert [path.name for path in tmp_path.iterdir()] == [file]
