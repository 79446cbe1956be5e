import gguf
import numpy as np
import pytest
from support.memory_source import MemorySource

from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_shards import read_shards, shard_paths
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError


@pytest.fixture
def shards(tmp_path):
    """A model of one file, split by the gguf package into files of at most five tensors."""
    whole = tmp_path / "whole.gguf"
    write_gguf(MemorySource(), whole, name="x")
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=5)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.glob("m-*.gguf"))


@pytest.mark.parametrize("index", [0, 2, -1], ids=["first", "middle", "last"])
def test_any_shard_opens_the_model(shards, index):
    assert len(shards) == 5
    source, original = GGUFSource(shards[index]), MemorySource()
    assert set(source.tensors) == set(original.tensors)
    for name, weight in original.weights.items():
        assert np.array_equal(source.read(name).parts["blocks"].reshape(-1).view("<f4"), weight.reshape(-1))
    assert source.fingerprint() == GGUFSource(shards[0]).fingerprint()


def test_missing_shards_are_named(shards):
    shards[1].unlink()
    shards[3].unlink()
    with pytest.raises(InputError, match=r"missing: m-00002-of-00005\.gguf, m-00004-of-00005\.gguf"):
        GGUFSource(shards[0])


def test_shard_of_another_model(shards):
    shards[1].write_bytes(shards[2].read_bytes())
    with pytest.raises(InputError, match="is in another shard too"):
        read_shards(shards[0])


def test_shard_under_another_number(shards):
    first, second = shards[0].read_bytes(), shards[1].read_bytes()
    shards[0].write_bytes(second)
    shards[1].write_bytes(first)
    with pytest.raises(InputError, match=r"split\.no is 1, expected 0"):
        read_shards(shards[0])


def test_shard_under_a_plain_name(shards):
    plain = shards[0].rename(shards[0].with_name("plain.gguf"))
    with pytest.raises(InputError, match=r"split\.count is 5, expected 1"):
        read_shards(plain)


def test_impossible_numbers_are_refused(tmp_path):
    with pytest.raises(InputError, match="shard 3 of 2"):
        shard_paths(tmp_path / "m-00003-of-00002.gguf")
