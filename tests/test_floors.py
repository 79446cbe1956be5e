"""Imports point one way, floor by floor, and are at the top of their files unless they load something slow."""

import shutil
import subprocess
import sys
from pathlib import Path

from support.data import REPO
from support.imports import Sources, python_files

LINT = str(REPO / "checks/floors.py")
CONTRACTS = ("packages", "floors of qbench", "floors of quant", "no circles among siblings")
MAY_IMPORT_LATE = {
    "qbench": "what it offers imports what it is made of, and every import of a module runs it first",
    "qbench.speed.speed_worker": "llama.cpp's worker imports it too, whose memory must not hold our runtime",
}
# Each breaks one contract: (module, the line appended to it, import-linter's name of it).
PLANTED = (
    ("quant.qtensor", "import qbench.words.written", "quant.qtensor -> qbench.words.written"),
    ("cpu_kernels.gram", "import quant.errors", "cpu_kernels.gram -> quant.errors"),
    ("qbench.measure.child", "import qbench.speed.steady", "qbench.measure.child -> qbench.speed.steady"),
    ("qbench.words.read", "def late():\n    import qbench.cli.output", "qbench.words.read -> qbench.cli.output"),
    ("qbench.quality.quality", "import qbench.speed.steady", "qbench.quality.quality -> qbench.speed.steady"),
    ("quant.source", "import quant.formats.bits", "quant.source -> quant.formats.bits"),
    ("qbench.sweeps.suite.rules", "import qbench.sweeps.suite.suite", "No cycles are allowed in qbench.sweeps.suite."),
)


def lint(folder: Path) -> subprocess.CompletedProcess:
    """import-linter on the packages in `folder`."""
    return subprocess.run([sys.executable, LINT], cwd=folder, capture_output=True, text=True)


def append(folder: Path, module: str, text: str) -> None:
    with (folder / f"{module.replace('.', '/')}.py").open("a") as file:
        file.write(f"{text}\n")


def test_floors_hold():
    done = lint(REPO)
    assert done.returncode == 0, done.stdout
    assert [name for name in CONTRACTS if f"{name} KEPT" not in done.stdout] == []


def test_planted_imports_are_found(tmp_path):
    for path in python_files(REPO):
        target = tmp_path / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    for module, text, _ in PLANTED:
        append(tmp_path, module, text)
    append(tmp_path, "qbench.homeless", "")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert [name for name in CONTRACTS if f"{name} BROKEN" not in done.stdout] == []
    assert [told for told in (*(told for *_, told in PLANTED), "homeless") if told not in done.stdout] == []


def test_imports_are_at_the_top():
    needless = [one for one in Sources(REPO).needless() if one.partition(":")[0] not in MAY_IMPORT_LATE]
    assert needless == []


def test_a_planted_late_import_is_found(tmp_path):
    (tmp_path / "quant").mkdir()
    append(tmp_path, "quant.fast", "import json")
    append(tmp_path, "quant.slow", "import torch")
    append(tmp_path, "quant.late", "def late():\n    import quant.fast\n    import quant.slow\n    import torch")
    assert list(Sources(tmp_path).needless()) == ["quant.late:2 -> quant.fast"]
