"""Files of real models and texts: an unknown name, a missing file and a changed one get a line each."""

import hashlib

import pytest

from qbench import real
from qbench.real import RealFile, real_file
from qbench.run.work import QualityWork, text_file
from quant.errors import InputError

CONTENT = b"Once upon a time"
STORY = RealFile("texts/story.txt", len(CONTENT), "none", "a story", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_REAL", str(tmp_path))
    monkeypatch.setitem(real.TABLES, "text", {"story": STORY})
    real_file.cache_clear()
    yield tmp_path
    real_file.cache_clear()


def test_a_name_leads_to_the_file_of_the_folder(folder):
    path = folder / STORY.file
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert real_file("real:story", "text") == path == text_file("real:story")


def test_a_missing_file_names_the_way_to_get_it(folder):
    with pytest.raises(InputError, match=r"real:story: .*story.txt is not there; `make real` fetches"):
        real_file("real:story", "text")


def test_a_changed_file_is_refused(folder):
    path = folder / STORY.file
    path.parent.mkdir()
    path.write_bytes(CONTENT.upper())
    with pytest.raises(InputError, match=r"real:story: .* has sha256 [0-9a-f]{12}\.\.\., expected"):
        real_file("real:story", "text")


def test_an_unknown_name_lists_the_known_names(folder):
    with pytest.raises(InputError, match=r"unknown text 'real:stori'; known: real:story; did you mean"):
        real_file("real:stori", "text")


@pytest.mark.parametrize(("text", "is_file"), [("a.txt", True), ("generated", False), ("hf:x/y", False), (None, False)])
def test_only_paths_and_real_texts_are_files(text, is_file):
    assert (text_file(text) is not None) == is_file


def test_the_text_of_a_work_is_kept_as_it_was_named():
    assert QualityWork(text="real:story").to_json()["text"] == "real:story"
