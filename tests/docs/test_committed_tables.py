"""Committed tables and pictures, made again from the committed records."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "results").glob("*/README.md")), *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
TABLES = [line.strip() for line in re.findall(r"^ *qbench report .*--into .*$", TEXT, re.MULTILINE)]
PICTURES = [line.strip() for line in re.findall(r"^ *qbench report .*--svg docs.*$", TEXT, re.MULTILINE)]


def written(line: str, option: str, folder: Path, run) -> tuple[Path, Path]:
    """Run the line with a copy of the file that it writes. returns the copy and the file"""
    _, *words = shlex.split(line, comments=True)
    place = words.index(option) + 1
    file = ROOT / words[place]
    copy = folder / file.name
    if file.exists():
        shutil.copy(file, copy)
    words[place] = str(copy)
    status, printed = run(*(str(ROOT / word) if word.startswith("results/") else word for word in words))
    assert status == 0, printed
    return copy, file


def test_the_readme_has_its_commands():
    assert len(TABLES) > 20 and any("--into README.md" in line for line in TABLES) and len(PICTURES) == 1


@pytest.mark.exhaustive("all kept records are read")
@pytest.mark.parametrize("line", TABLES, ids=lambda line: " ".join(line.split()[2:5:2]))
def test_a_table_is_that_of_its_records(line, run, tmp_path):
    copy, page = written(line, "--into", tmp_path, run)
    assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


@pytest.mark.exhaustive("with the tables")
@pytest.mark.parametrize("line", PICTURES, ids=lambda line: line.split()[2])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_is_that_of_its_records(line, theme, run, tmp_path):
    copy, picture = written(line, "--svg", tmp_path, run)
    name = f"{picture.stem}-{theme}.svg"
    assert copy.with_name(name).read_text() == picture.with_name(name).read_text()
