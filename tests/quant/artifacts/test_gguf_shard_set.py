"""Sets of shards: those that gguf-split writes and llama.cpp reads, and those after a kill at any moment."""

import subprocess
import sys

import gguf
import numpy as np
import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from quant.artifacts import GGUFSource, read_manifest
from quant.artifacts.gguf_shards import first_shard, shard_sizes
from quant.errors import InputError
from quant.recipes import get_recipe

SHARD_BYTES = 200_000


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def written(tmp_path):
    """The first of several shards of a q8_0 model."""
    return write_artifact(MemorySource(), tmp_path / "m.gguf", recipe=get_recipe("q8_0"), max_shard_bytes=SHARD_BYTES)


@pytest.mark.parametrize(
    "sizes, max_bytes, expected",
    [
        ([4, 4, 4], 8, [2, 1]),
        ([9, 1, 1], 8, [1, 2]),  # larger than a shard: one of its own
        ([1, 9, 1], 8, [1, 1, 1]),
        ([8], 8, [1]),
        ([3, 3, 3], 100, [3]),
    ],
)
def test_tensors_a_shard(sizes, max_bytes, expected):
    assert shard_sizes(sizes, max_bytes) == expected


def test_more_shards_than_can_be_counted():
    with pytest.raises(InputError, match="would be 65536, at most 65535; make them larger"):
        shard_sizes([2] * 65536, 1)


def test_files_match_gguf_split(written, tmp_path):
    files = sorted(tmp_path.glob("*.gguf"))
    assert written == files[0] and len(files) == 3
    readers = [gguf.GGUFReader(file) for file in files]
    num_tensors = sum(len(reader.tensors) for reader in readers)
    u16, i32 = gguf.GGUFValueType.UINT16, gguf.GGUFValueType.INT32
    for number, reader in enumerate(readers):
        expected = {
            "split.no": (number, u16),
            "split.count": (len(files), u16),
            "split.tensors.count": (num_tensors, i32),
        }
        assert {key: (reader.fields[key].contents(), reader.fields[key].types[0]) for key in expected} == expected
        own = {key for key in reader.fields if not key.startswith(("GGUF.", "split."))}
        assert number == 0 or own == {"general.architecture"}
        assert (
            sum(-(-tensor.n_bytes // 32) * 32 for tensor in reader.tensors) <= SHARD_BYTES or len(reader.tensors) == 1
        )


def test_shards_hold_the_same_as_one_file(written, tmp_path):
    whole = write_artifact(MemorySource(), tmp_path / "whole.gguf", recipe=get_recipe("q8_0"))
    one, many = GGUFSource(whole), GGUFSource(written)
    assert list(one.tensors.items()) == list(many.tensors.items()) and one.config == many.config
    for name in one.tensors:
        assert np.array_equal(one.read(name).parts["blocks"], many.read(name).parts["blocks"])
    manifests = [
        read_manifest(path) for path in (whole, written, tmp_path / written.name.replace("-00001-", "-00003-"))
    ]
    assert manifests[0].tensors == manifests[1].tensors and manifests[1] == manifests[2]


def test_llama_cpp_computes_the_same_logits(tmp_path, byte_level_tokenizer):
    llama_cpp = pytest.importorskip("llama_cpp")
    source = MemorySource(byte_level_tokenizer)
    logits = []
    for size in (None, SHARD_BYTES):
        path = write_artifact(source, tmp_path / "m.gguf", recipe=get_recipe("q8_0"), max_shard_bytes=size)
        model = llama_cpp.Llama(str(path), verbose=False, n_ctx=64, n_threads=1, n_threads_batch=1, logits_all=True)
        model.eval(list(range(5, 37)))
        logits.append(np.array(model.scores[:32]))
        model.close()
    assert np.array_equal(*logits) and np.ptp(logits[0]) > 0


def test_a_rerun_leaves_no_shard_of_the_older_set(written, tmp_path):
    (tmp_path / "other-00001-of-00002.gguf").write_bytes(b"GGUF another model's")
    again = write_artifact(MemorySource(seed=1), tmp_path / "m.gguf", recipe=get_recipe("q8_0"), max_shard_bytes=10**9)
    assert again.name == "m-00001-of-00001.gguf"
    assert names(tmp_path) == [again.name, f"{again.name}.qbench.json", "other-00001-of-00002.gguf"]
    assert GGUFSource(again).fingerprint()


def test_something_else_under_the_name_of_a_shard(written, tmp_path):
    strange = tmp_path / "m-00009-of-00009.gguf"
    strange.write_text("notes")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"m-00009-of-00009\.gguf exists and is something else"):
        write_artifact(MemorySource(), tmp_path / "m.gguf", recipe=get_recipe("q8_0"), max_shard_bytes=SHARD_BYTES)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_failed_write_leaves_the_older_set(written, tmp_path):
    class Failing(MemorySource):
        def read(self, name):
            if "layers.1" in name:
                raise InputError("gone")
            return super().read(name)

    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="gone"):
        write_artifact(Failing(seed=1), tmp_path / "m.gguf", recipe=get_recipe("q8_0"), max_shard_bytes=SHARD_BYTES)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf"])
def test_output_named_like_one_shard(tmp_path, name):
    with pytest.raises(InputError, match=r"is the name of one shard of several; write to m\.gguf"):
        write_artifact(MemorySource(), tmp_path / name, recipe=get_recipe("q8_0"))


def test_shards_of_a_directory(tmp_path):
    with pytest.raises(InputError, match="shards of a given size are for GGUF files"):
        write_artifact(MemorySource(), tmp_path / "x", recipe=get_recipe("bf16"), max_shard_bytes=10**9)


def test_first_shard_by_name(tmp_path):
    assert first_shard(tmp_path / "m-00003-of-00004.gguf").name == "m-00001-of-00004.gguf"
    assert first_shard(tmp_path / "m.gguf").name == "m.gguf"


KILLED = """
import os, pathlib, signal, sys
from quant.artifacts.gguf_shard_set import atomic_shards
left = 0
def counted(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call
os.replace, os.fsync, pathlib.Path.unlink = map(counted, (os.replace, os.fsync, pathlib.Path.unlink))
for kill_at in range(1, 100):
    child = os.fork()
    if child == 0:
        left = kill_at
        with atomic_shards(pathlib.Path(sys.argv[1]) / str(kill_at) / "m.gguf", 3) as temps:
            for temp in temps:
                temp.write_text("GGUF new")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(kill_at)
        break
"""


def test_killed_at_any_step_of_the_change_there_is_no_mixture(tmp_path):
    """Every unlink, rename and fsync is a place to die: the first shard is there with its whole set, or not at all."""
    for kill_at in range(1, 100):
        (tmp_path / str(kill_at)).mkdir()
        for number in (1, 2, 3):
            (tmp_path / str(kill_at) / f"m-{number:05d}-of-00003.gguf").write_text("GGUF old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=True)
    seen = []
    for kill_at in range(1, int(done.stdout) + 1):
        texts = [path.read_text() for path in sorted((tmp_path / str(kill_at)).glob("m-*.gguf"))]
        whole = (tmp_path / str(kill_at) / "m-00001-of-00003.gguf").exists()
        assert not whole or texts in (["GGUF old"] * 3, ["GGUF new"] * 3), kill_at
        seen.append(texts[0] if whole else "none")
    assert list(dict.fromkeys(seen)) == ["GGUF old", "none", "GGUF new"]
