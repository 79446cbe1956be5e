"""The file of packed weights: written once, written again when anything differs, never trusted when damaged."""

import pytest
import torch
from support.artifact import write_artifact

from qbench.run_options import RunOptions
from qbench.runtime.offload import Use, check_limit
from qbench.runtime.offload import stream_file as files
from qbench.runtime.offload.stream_file import stream_path
from qbench.runtime.offload.units import PAGE
from qbench.sources import open_source
from quant.errors import InputError
from quant.recipes import get_recipe

TOKENS = torch.tensor([[1, 2, 3]])


@pytest.fixture
def source(tmp_path):
    path = write_artifact(open_source("ref:llama"), tmp_path / "model.gguf", recipe=get_recipe("q8_0"))
    return open_source(str(path))


def test_it_is_written_once_and_said_so(source, offloaded, capfd):
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


def test_something_else_of_that_name_is_left_alone(source, offloaded):
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
