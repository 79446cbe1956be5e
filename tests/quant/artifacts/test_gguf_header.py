"""Corrupt GGUF files, by hand and at random: an InputError that names the file, never anything else."""

import struct

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory_source import MemorySource

from quant.artifacts.gguf_header import read_header
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.gguf_writer import write_gguf
from quant.errors import InputError


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key_u32(name, value):
    return text(name) + struct.pack("<II", 4, value)


def tensor(name, dims=(4,), ggml_type=0, offset=0):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, ggml_type, offset)


def build(keys=(), tensors=(), data=b"", version=3, magic=b"GGUF", num_tensors=None, num_keys=None):
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    raw = head + b"".join(keys) + b"".join(tensors)
    return raw + b"\0" * (-len(raw) % 32) + data


FOUR = np.arange(4, dtype="<f4").tobytes()
GOOD = build([key_u32("a", 7)], [tensor("t")], FOUR)


def read(tmp_path, raw):
    path = tmp_path / "x.gguf"
    path.write_bytes(raw)
    return read_header(path)


def test_good_file(tmp_path):
    header = read(tmp_path, GOOD)
    assert header.metadata == {"a": 7}
    assert header.tensors["t"].shape == (4,) and header.tensors["t"].size_bytes == 16


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(tmp_path, version):
    read(tmp_path, build(version=version))


def value(value_type, raw):
    return text("k") + struct.pack("<I", value_type) + raw


@pytest.mark.parametrize(
    "raw, words",
    [
        pytest.param(b"", "too few", id="empty"),
        pytest.param(b"GGUF\3\0\0\0", "too few", id="only a version"),
        pytest.param(build(magic=b"GGML"), "expected b'GGUF'", id="magic"),
        pytest.param(build(version=1), "version 1 is not supported", id="version 1"),
        pytest.param(build(version=3 << 24), "big-endian", id="big-endian"),
        pytest.param(build(num_tensors=2**63), "tensor count is 9223372036854775808", id="absurd tensor count"),
        pytest.param(build(num_keys=10**12), "key count is 1000000000000", id="absurd key count"),
        pytest.param(build([text("k")[:-1]], num_keys=1), "key count is 1", id="name past the end"),
        pytest.param(
            build([struct.pack("<Q", 2**62)], num_keys=1, data=b" " * 64),
            "length of name of key 0",
            id="absurd name length",
        ),
        pytest.param(
            build([value(8, struct.pack("<Q", 10**9))], data=b" " * 64), "length of key 'k'", id="long string"
        ),
        pytest.param(
            build([value(9, struct.pack("<IQ", 4, 2**61))], data=b" " * 64), "length of key 'k'", id="absurd array"
        ),
        pytest.param(
            build([value(9, struct.pack("<IQ", 8, 10**9))], data=b" " * 64), "length of key 'k'", id="absurd strings"
        ),
        pytest.param(build([value(9, struct.pack("<IQ", 9, 1))], data=b" " * 64), "value type 9", id="nested array"),
        pytest.param(build([value(99, b"")], data=b" " * 64), "value type 99", id="unknown value type"),
        pytest.param(build([value(7, b"\2")], data=b" " * 64), "must be 0 or 1", id="bool of 2"),
        pytest.param(build([value(8, struct.pack("<Q", 1) + b"\xff")]), "not UTF-8", id="string of no UTF-8"),
        pytest.param(build([key_u32("a", 1), key_u32("a", 2)]), "key 'a' is there twice", id="duplicate key"),
        pytest.param(
            build([], [tensor("t"), tensor("t", offset=32)], FOUR * 4),
            "tensor 't' is there twice",
            id="duplicate tensor",
        ),
        pytest.param(build([], [tensor("t", dims=())], FOUR), "0 dimensions", id="no dimensions"),
        pytest.param(build([], [tensor("t", dims=(1,) * 5)], FOUR), "5 dimensions", id="too many dimensions"),
        pytest.param(build([], [tensor("t", dims=(0, 4))], FOUR), "more or less than", id="zero dimension"),
        pytest.param(
            build([], [tensor("t", dims=(2**32, 2**32))], FOUR), "more or less than", id="product past 64 bits"
        ),
        pytest.param(build([], [tensor("t", ggml_type=77)], FOUR), "type 77", id="unknown type"),
        pytest.param(build([], [tensor("t", dims=(33,), ggml_type=8)], FOUR), "tensor 't'", id="row of no whole block"),
        pytest.param(build([], [tensor("t", offset=4)], FOUR * 2), "multiple of 32", id="unaligned"),
        pytest.param(build([], [tensor("t", offset=32)], FOUR), "the file ends at", id="offset past the end"),
        pytest.param(build([], [tensor("t", offset=2**64 - 32)], FOUR), "the file ends at", id="absurd offset"),
        pytest.param(GOOD[:-1], "the file ends at", id="last byte missing"),
        pytest.param(build([], [tensor("t"), tensor("u")], FOUR), "share bytes", id="overlap"),
        pytest.param(build([key_u32("general.alignment", 3)]), "power of two", id="alignment of 3"),
        pytest.param(build([key_u32("general.alignment", 0)]), "power of two", id="alignment of 0"),
    ],
)
def test_corrupt_files_are_refused_in_one_line(tmp_path, raw, words):
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path, raw)
    assert "x.gguf" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_header(tmp_path / "none.gguf")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole small model's bytes, and a place to put damaged ones."""
    path = tmp_path_factory.mktemp("fuzz") / "x.gguf"
    sizes = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 4, "num_attention_heads": 2, "vocab_size": 8}
    write_gguf(MemorySource(num_key_value_heads=1, num_hidden_layers=1, **sizes), path, name="x")
    return path, path.read_bytes()


def opens_or_says_why(path):
    try:
        source = GGUFSource(path)
        for name in source.tensors:
            source.read(name)
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_damage(whole, data):
    path, raw = whole
    header = 2600
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    opens_or_says_why(path)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_truncation_anywhere(whole, data):
    path, raw = whole
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 32))])
    with pytest.raises(InputError):
        GGUFSource(path)


def test_header_equals_the_gguf_packages(whole):
    path, raw = whole
    path.write_bytes(raw)
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    assert {t.name: (tuple(t.shape[::-1]), t.data_offset, t.n_bytes) for t in theirs.tensors} == {
        name: (t.shape, t.start, t.size_bytes) for name, t in ours.tensors.items()
    }
