"""Every flipped bit of every file of an artifact is found by its digests, those of the manifest included."""

import random

import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts.manifest import changes, manifest_path, read_manifest
from quant.artifacts.write import copy_artifact
from quant.errors import InputError
from quant.present import present
from quant.recipes import get_recipe

FLIPS = 150


def noticed(path) -> bool:
    try:
        manifest = read_manifest(path)
        return manifest is None or bool(changes(path, manifest))
    except InputError:
        return True


@pytest.mark.parametrize("name, recipe", [("x.gguf", "q8_0"), ("x", "rtn-w8a8")])
def test_every_flip_is_found(tmp_path, name, recipe):
    path = write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe(recipe))
    assert not noticed(path)
    files = [path, manifest_path(path)] if path.is_file() else sorted(path.iterdir())
    rng = random.Random(0)
    for _ in range(FLIPS):
        file = rng.choice(files)
        whole = file.read_bytes()
        # Half of the flips of a GGUF file are in its metadata, which comes first.
        most = min(len(whole), 4096) if rng.random() < 0.5 else len(whole)
        at, bit = rng.randrange(most), rng.randrange(8)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        assert noticed(path), f"{file.name}: bit {bit} of byte {at}"
        file.write_bytes(whole)
    assert not noticed(path)


def test_missing_and_added_files_are_found(tmp_path):
    path = write_artifact(MemorySource(), tmp_path / "x", recipe=get_recipe("rtn-w8"))
    (path / "README.md").write_text("notes of the user")
    assert not noticed(path)
    (path / "generation_config.json").write_text("{}")
    assert dict(changes(path, present(read_manifest(path)))) == {"generation_config.json": "the file was added later"}
    (path / "generation_config.json").unlink()
    (path / "tokenizer_config.json").unlink(missing_ok=True)
    (path / "config.json").rename(path / "old.json")
    assert changes(path, present(read_manifest(path)))["config.json"] == "the file is missing"


def test_shards_keep_their_digests_under_another_name(tmp_path):
    first = copy_artifact(MemorySource(), tmp_path / "x.gguf", max_shard_bytes=100_000)
    shards = sorted(tmp_path.glob("x-*.gguf"))
    assert len(shards) > 1 and not noticed(first)
    manifest = manifest_path(first)
    for file in (*shards, manifest):
        file.rename(file.with_name(file.name.replace("x-", "y-", 1)))
    renamed = first.with_name(first.name.replace("x-", "y-", 1))
    assert not noticed(renamed)
    last = sorted(tmp_path.glob("y-*.gguf"))[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\xff")
    assert list(changes(renamed, present(read_manifest(renamed)))) == [last.name]
