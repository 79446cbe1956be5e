"""Directories and files without the expected weights: the message has the cause and the next step."""

import json

import pytest
from support.small_directory import write_small

from qbench.sources import open_source
from quant.errors import InputError

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 143026336\n"


@pytest.fixture
def model(tmp_path):
    return write_small("llama", tmp_path / "model")


def refused(path) -> str:
    with pytest.raises(InputError) as caught:
        open_source(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_dead_link_is_named(model, name):
    (model / name).unlink()
    (model / name).symlink_to("../../blobs/1f2e")
    assert f"{name}: a link to ../../blobs/1f2e, which is not there; download the model again" in refused(model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(model, name):
    (model / name).write_bytes(POINTER)
    assert f"{name}: a pointer of Git LFS in place of the file; run `git lfs pull`" in refused(model)


def test_a_pointer_in_place_of_a_gguf_file_is_named(tmp_path):
    (tmp_path / "m.gguf").write_bytes(POINTER)
    assert "m.gguf: a pointer of Git LFS" in refused(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model-00001-of-00002.safetensors", "so download model.safetensors.index.json as well"),
        ("adapter_model.safetensors", "merge it into its base model"),
        ("pytorch_model.bin", "save the model with safe_serialization=True"),
        ("notes.txt", "other weight files are not read"),
    ],
)
def test_other_weights_than_the_read_ones_are_named(model, name, words):
    (model / "model.safetensors").rename(model / name)
    assert words in refused(model)


def test_an_adapter_without_its_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "an adapter without its model: merge it into its base model" in refused(tmp_path)


def test_a_config_of_old_autogptq_is_refused_with_advice(model):
    source, config = model / "model.safetensors", json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "the files are not those of config.json" in refused(model)
    (model / "quantize_config.json").write_text('{"bits": 4}')
    assert source.exists() and "put its keys into config.json as quantization_config" in refused(model)
