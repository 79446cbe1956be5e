"""Corrupt safetensors files: an InputError that names the file; whole ones as the safetensors library reads them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from quant.artifacts.file_bytes import read_span
from quant.errors import InputError
from quant.safetensors.folder import read_tensors
from quant.safetensors.header import read_header
from quant.safetensors.writer import Entry, safetensors_writer


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def build(header, data=b"12345678", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


GOOD = build({"t": entry(), "__metadata__": {"format": "pt"}})


def read(tmp_path, raw):
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    return read_header(path)


def test_good_file(tmp_path):
    tensor = read(tmp_path, GOOD)["t"]
    assert (tensor.dtype, tensor.shape, tensor.size_bytes) == ("F32", (2,), 8)
    assert bytes(read_span(tensor.path, tensor.start, tensor.size_bytes)) == b"12345678"


@pytest.mark.parametrize(
    "raw, words",
    [
        pytest.param(b"", "a header of 0 bytes in a file of 0", id="empty"),
        pytest.param(b"1234", "in a file of 4", id="no length"),
        pytest.param(build({"t": entry()}, length=2**63), "a header of 9223372036854775808 bytes", id="absurd length"),
        pytest.param(GOOD[:20], "in a file of 20", id="truncated header"),
        pytest.param(GOOD[:-1], "the file at", id="last byte missing"),
        pytest.param(GOOD + b"x", "the file at", id="a byte too many"),
        pytest.param(build(b"{not json"), "not valid JSON", id="no JSON"),
        pytest.param(build(b"\xff\xfe"), "not valid JSON", id="no UTF-8"),
        pytest.param(build(b"[]"), "expected a JSON object", id="a list"),
        pytest.param(build(b"[" * 100000), "not valid JSON", id="deep nesting"),
        pytest.param(
            build(b'{"t":' + json.dumps(entry()).encode() + b',"t":' + json.dumps(entry()).encode() + b"}"),
            "key 't' is there twice",
            id="duplicate name",
        ),
        pytest.param(build({"t": 3}), "must have dtype, shape and data_offsets", id="entry is a number"),
        pytest.param(build({"t": {"dtype": "F32"}}), "must have dtype, shape", id="entry of a dtype alone"),
        pytest.param(build({"t": entry(dtype="F77")}), "dtype 'F77'; known", id="dtype"),
        pytest.param(build({"t": entry(dtype=["F32"])}), r"dtype \['F32'\]", id="dtype is a list"),
        pytest.param(build({"t": entry(shape=(-2,))}), "expected whole numbers", id="negative shape"),
        pytest.param(build({"t": entry(shape=(2.0,))}), "expected whole numbers", id="shape of floats"),
        pytest.param(build({"t": entry(shape=(True, 2))}), "expected whole numbers", id="shape of truths"),
        pytest.param(build({"t": entry(offsets=(0,))}), "expected whole numbers", id="one offset"),
        pytest.param(build({"t": entry(offsets=(8, 0))}), "its offsets span -8", id="offsets backwards"),
        pytest.param(build({"t": entry(shape=(3,))}), "takes 12 bytes, its offsets span 8", id="wrong tensor size"),
        pytest.param(build({"t": entry(dtype="F16")}), "takes 4 bytes", id="wrong dtype size"),
        pytest.param(build({"t": entry(shape=(2**62, 2**62))}), "its offsets span 8", id="product past 64 bits"),
        pytest.param(build({"t": entry(), "u": entry()}), "overlap or leave holes", id="overlap"),
        pytest.param(build({"t": entry(offsets=(4, 12))}, b"0" * 12), "overlap or leave holes", id="hole"),
        pytest.param(build({"t": entry(offsets=(2**40, 2**40 + 8))}), "leave holes", id="offset past the end"),
    ],
)
def test_corrupt_files_are_refused_in_one_line(tmp_path, raw, words):
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path, raw)
    assert "x.safetensors" in str(caught.value) and "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_damage(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    damaged = bytearray(GOOD[: data.draw(st.integers(0, len(GOOD)))])
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        for tensor in read_header(path).values():
            read_span(path, tensor.start, tensor.size_bytes)
    except InputError as error:
        assert "\n" not in str(error)


def test_files_of_the_library(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.arange(3, dtype=np.int64), "c": np.ones(0)}
    save_file(arrays, tmp_path / "x.safetensors")
    for name, tensor in read_header(tmp_path / "x.safetensors").items():
        assert bytes(read_span(tensor.path, tensor.start, tensor.size_bytes)) == arrays[name].tobytes()


ARRAYS = {
    "half": np.arange(3, dtype=np.float16),  # odd: would leave the next tensor unaligned
    "wide": np.arange(2, dtype=np.int64),
    "words": np.arange(5, dtype=np.int32),
    "float": np.arange(6, dtype=np.float32).reshape(2, 3),
}
DTYPES = {"float16": "F16", "int64": "I64", "int32": "I32", "float32": "F32"}


def write(folder, shard_bytes):
    groups = [[Entry(name, DTYPES[str(array.dtype)], array.shape)] for name, array in ARRAYS.items()]
    with safetensors_writer(folder, groups, shard_bytes) as writer:
        for name in reversed(ARRAYS):
            writer.write(name, ARRAYS[name])


@pytest.mark.parametrize("shard_bytes, num_files", [(10**9, 1), (24, 3), (1, 4)], ids=["one", "three", "each alone"])
def test_written_files_are_read_by_the_library(tmp_path, shard_bytes, num_files):
    write(tmp_path, shard_bytes)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) == num_files
    got = {}
    for file in files:
        with safe_open(file, framework="np") as opened:
            got |= {name: opened.get_tensor(name) for name in opened.keys()}
    assert got.keys() == ARRAYS.keys() and all(np.array_equal(got[name], array) for name, array in ARRAYS.items())
    tensors = read_tensors(tmp_path)
    assert all(tensor.start % array.dtype.itemsize == 0 for tensor, array in
               ((tensors[name], array) for name, array in ARRAYS.items()))  # fmt: skip


def damage_index(folder, change):
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    change(content["weight_map"])
    index.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param(lambda m: m.update(other="model-00001-of-00004.safetensors"), "'other' is not in", id="tensor"),
        pytest.param(lambda m: m.update(half="../x.safetensors"), "expected a .safetensors file beside", id="path out"),
        pytest.param(lambda m: m.update(half="x.bin"), "expected a .safetensors file beside", id="other suffix"),
        pytest.param(lambda m: m.update(half="gone.safetensors"), r"shard gone\.safetensors is missing", id="missing"),
        pytest.param(lambda m: m.clear(), "'weight_map' must be", id="empty map"),
    ],
)
def test_a_false_index_is_refused(tmp_path, change, words):
    write(tmp_path, 1)
    damage_index(tmp_path, change)
    with pytest.raises(InputError, match=words):
        read_tensors(tmp_path)


def test_tensor_in_two_files(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "model-00002-of-00004.safetensors").write_bytes(
        (tmp_path / "model-00001-of-00004.safetensors").read_bytes()
    )
    with pytest.raises(InputError, match=r"'half' is in model-00001-of-00004\.safetensors too"):
        read_tensors(tmp_path)


def test_no_weights(tmp_path):
    with pytest.raises(InputError, match=r"neither model\.safetensors nor"):
        read_tensors(tmp_path)
