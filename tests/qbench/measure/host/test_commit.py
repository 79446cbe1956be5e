"""The code version in a row."""

import pytest
from support.data import REPO

from qbench.measure.host import commit

# Files that are compiled or run, and so change a measurement: all except texts, weights and build outputs.
SOURCES = {".py", ".cpp", ".h", ".inl", ".in", ".c", ".cc", ".hpp", ".cu", ".cuh"}


def test_every_source_counts():
    assert [package for package in commit.MEASURING if not (REPO / package).is_dir()] == []
    files = [path for package in commit.MEASURING for path in (REPO / package).rglob("*")]
    assert {path.suffix for path in files} & SOURCES == set(commit.CODE_SUFFIXES)


@pytest.mark.parametrize("name", ["a.py", "b.cpp", "b.h", "c/d.inl", "d.cpp.in"])
def test_an_edit_is_another_code(tmp_path, monkeypatch, name):
    monkeypatch.setattr(commit, "ROOT", tmp_path)
    path = tmp_path / "quant" / name
    path.parent.mkdir(parents=True)
    hashes = []
    for text in ("one", "two"):
        path.write_text(text)
        commit.code_hash.cache_clear()
        hashes.append(commit.code_hash(("quant",)))
    commit.code_hash.cache_clear()
    assert hashes[0] != hashes[1]
