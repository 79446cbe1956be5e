"""The notebooks run from the first cell to the last, and are stored without outputs."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict]:
    """The cells of code."""
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def run_cells(cells: list[dict], name: str, monkeypatch) -> dict:
    """Execute code cells one after the other in a module of their own. returns the module's names"""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    for number, cell in enumerate(cells, start=1):
        exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), module.__dict__)
    return module.__dict__


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_stored(path):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells_of(path))


def test_the_runner_fails_as_a_cell_does(monkeypatch):
    assert run_cells([{"source": ["a = 1\n", "b = a + 1"]}], "notebook", monkeypatch)["b"] == 2
    with pytest.raises(AssertionError):
        run_cells([{"source": ["assert False"]}], "notebook", monkeypatch)


@pytest.mark.exhaustive("models are quantized and measured")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_cells(cells_of(path), f"notebook_{path.stem}", monkeypatch)
