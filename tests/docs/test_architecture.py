"""docs/contribute/architecture.md: its floors are those that are checked, and it names every folder and its class."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contribute/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def test_the_floors_match_the_checked_ones():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = (contract["layers"] for contract in contracts if contract["name"] == "floors of qbench")
    picture = PAGE.split("```text\n")[2].split("```")[0].splitlines()
    drawn = [re.split(r"  +", line)[0] for line in picture]
    assert drawn == [floor.removesuffix(" | pytest_plugin") for floor in floors if floor != "__main__"]


def test_every_folder_has_a_row():
    packages = {
        f"{top}/{path.name}"
        for top in ("qbench", "quant")
        for path in (ROOT / top).iterdir()
        if list(path.glob("*.py"))
    }
    named = {folder for folders, _, _ in ROWS for folder in CODE.findall(folders)}
    assert packages <= named


def test_the_first_thing_to_open_is_in_its_folder():
    for folders, _, first in ROWS:
        paths = [ROOT / folder for folder in CODE.findall(folders)]
        for name in CODE.findall(first):
            defined = re.compile(rf"^(class|def) {re.escape(name)}\b", re.MULTILINE)
            files = [file for path in paths for file in path.rglob("*.py")]
            is_file = any((path / name).is_file() for path in paths)
            assert is_file or any(defined.search(file.read_text()) for file in files), f"{name} is not in {folders}"
