"""The file of packed weights: written once, written again when anything differs, never trusted when damaged."""

import importlib

import numpy as np
import pytest
import torch
from support.array_source import ArraySource
from support.artifact import write_artifact

from qbench.run.options import RunOptions
from qbench.runtime.layers.linear import PackedLinear
from qbench.runtime.offload import Use, check_limit
from qbench.runtime.offload import stream_file as files
from qbench.runtime.offload.stream_file import stream_path
from qbench.runtime.offload.units import PAGE
from qbench.sources import open_source
from quant.errors import InputError
from quant.formats import FORMATS, get_format
from quant.models import EMBEDDING
from quant.recipes import get_recipe
from quant.source import has_row_blocks, row_blocks

TOKENS = torch.tensor([[1, 2, 3]])


@pytest.fixture
def source(tmp_path):
    path = write_artifact(open_source("ref:llama"), tmp_path / "model.gguf", recipe=get_recipe("q8_0"))
    return open_source(str(path))


def test_it_is_written_once_and_reported(source, offloaded, capfd):
    offloaded(source, 1 << 40)
    assert "writing" in capfd.readouterr().err
    before = stream_path(source).stat()
    offloaded(source, 1 << 40)
    assert stream_path(source).stat().st_mtime_ns == before.st_mtime_ns
    assert capfd.readouterr().err == ""


def test_memory_of_the_writing_is_given_back(source, offloaded, monkeypatch):
    """Else it counts towards the limit in the run that writes the file, and in no other."""
    released: list[bool] = []
    monkeypatch.setattr(files, "release_free_memory", lambda: released.append(stream_path(source).exists()))
    for _ in range(2):
        offloaded(source, 1 << 40)
    assert released == [True]


def test_another_model_version_or_layout_is_written_again(source, offloaded, monkeypatch, capfd):
    offloaded(source, 1 << 40)
    for attribute, value in (("VERSION", 7), ("_layout_hash", lambda formats: "another")):
        monkeypatch.setattr(files, attribute, value)
        capfd.readouterr()
        offloaded(source, 1 << 40)
        assert "writing" in capfd.readouterr().err
    source.path.touch()
    offloaded(source, 1 << 40)
    assert "writing" in capfd.readouterr().err


@pytest.mark.parametrize("size", [0, 10, PAGE, -1])
def test_a_file_that_was_cut_is_written_again(source, offloaded, size, capfd):
    expected = offloaded(source, 1 << 40)(TOKENS)
    path = stream_path(source)
    path.write_bytes(path.read_bytes()[:size])
    capfd.readouterr()
    assert torch.equal(offloaded(source, 1 << 40)(TOKENS), expected)
    assert "writing" in capfd.readouterr().err


def test_a_damaged_unit_is_no_weight(source, offloaded):
    offloaded(source, 1 << 40)
    path = stream_path(source)
    data = bytearray(path.read_bytes())
    data[PAGE + 1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="layer 0 is damaged; remove the file"):
        offloaded(source, 1 << 40)(TOKENS)


def test_another_file_of_that_name_is_left_untouched(source, offloaded):
    stream_path(source).write_text("mine")
    with pytest.raises(InputError, match="exists and is something else"):
        offloaded(source, 1 << 40)
    assert stream_path(source).read_text() == "mine"


@pytest.mark.parametrize("use", [Use(num_tokens=10_000), Use(batch=4000), Use(capacity=1 << 20)])
def test_a_limit_that_its_use_makes_too_small(source, use, monkeypatch):
    monkeypatch.setattr("qbench.runtime.offload.budget.rss_bytes", lambda: 1 << 30)
    options = RunOptions(memory_bytes=(1 << 30) + (64 << 20))  # enough for one token
    check_limit(source, options, Use())
    with pytest.raises(InputError, match="is too little for one layer of this model next to its cache"):
        check_limit(source, options, use)


def packable() -> list[str]:
    has_packed_linear = importlib.import_module("cpu_kernels").has_packed_linear
    return [name for name in (*FORMATS, "w2g64", "w4g32-asym", "trellis-w2", "trellis-w3") if has_packed_linear(name)]


@pytest.mark.parametrize("name", packable())
def test_blocks_of_rows_are_packed_as_the_whole_weight(name, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1)
    random = np.random.default_rng(0)
    encoded = get_format(name).quantize_ref(random.standard_normal((16, 256)).astype(np.float32))
    for num_rows in (48, 64, 208):
        whole = encoded.take_rows(random.integers(0, 16, num_rows))
        packed = [bytes(data) for _, data in files.packed_blocks(ArraySource({}, {"w": whole}), "w")]
        assert b"".join(packed) == bytes(PackedLinear(whole).packed.bytes)
        assert len(packed) == (-(-num_rows // files.PANEL_ROWS) if files.packs_by_rows(name) else 1)


@pytest.mark.parametrize("kind", ["rand", "gguf", "folder"])
def test_blocks_of_rows_are_the_tensor(kind, tmp_path):
    source = open_source("rand:tiny")
    if kind != "rand":
        path, recipe = (tmp_path / "model.gguf", "q4_k_m") if kind == "gguf" else (tmp_path / "model", "bf16")
        source = open_source(str(write_artifact(source, path, recipe=get_recipe(recipe))))
    in_blocks = [name for name, info in source.tensors.items() if len(info.shape) > 1 and has_row_blocks(source, name)]
    assert EMBEDDING in in_blocks and "lm_head.weight" in in_blocks
    for name in in_blocks:
        whole, blocks = source.read(name), list(row_blocks(source, name, 60))
        assert len(blocks) == -(-whole.shape[0] // 60)
        for part, array in whole.parts.items():
            assert np.array_equal(np.concatenate([block.parts[part] for block in blocks]), array)


def test_a_limit_below_the_writing_names_the_file(source, monkeypatch):
    """A source that reads whole tensors needs memory for three copies of the largest one."""
    monkeypatch.setattr("qbench.runtime.offload.budget.rss_bytes", lambda: 1 << 30)
    monkeypatch.setattr(files, "WHOLE_COPIES", 1 << 16)
    monkeypatch.setattr(files, "has_row_blocks", lambda *_: False)
    options = RunOptions(memory_bytes=2 << 30)
    with pytest.raises(InputError, match="is too little for the file of streamed weights, which is written first"):
        check_limit(source, options, Use())
    assert not stream_path(source).exists()


def test_a_file_that_is_there_needs_no_memory_to_be_written(source, offloaded, monkeypatch):
    offloaded(source, 1 << 40)
    monkeypatch.setattr("qbench.runtime.offload.budget.rss_bytes", lambda: 1 << 30)
    monkeypatch.setattr(files, "BLOCKS_IN_MEMORY", 1 << 20)
    check_limit(source, RunOptions(memory_bytes=2 << 30), Use())
