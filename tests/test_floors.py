"""Imports point one way, floor by floor, and are at the top of their files unless they load something slow."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.data import REPO

# Imports of the modules of this project, read from their syntax.

PACKAGES = ("qbench", "quant", "cpu_kernels", "gpu_kernels")
# Packages that an installation may lack, or that take long to load. cpu_kernels is both: quant runs without it built.
SLOW = frozenset(
    "cpu_kernels datasets duckdb fastapi gguf huggingface_hub llama_cpp lm_eval numpy pandas plotly prometheus_client "
    "ray rich safetensors.torch scipy torch torch.distributed transformers triton uvicorn".split()
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and where."""

    module: str
    line: int
    in_function: bool


class Sources:
    """The Python modules below a folder that holds PACKAGES."""

    def __init__(self, root: Path) -> None:
        self.paths = {_name(path.relative_to(root)): path for path in python_files(root)}
        self.imports = {name: tuple(self._imports(path)) for name, path in self.paths.items()}
        self.slow = cache(self._slow)

    def needless(self) -> Iterator[str]:
        """MODULE:LINE -> IMPORTED of the imports inside functions that the top of the file could make at no cost."""
        for name, found in self.imports.items():
            for one in found:
                if one.in_function and not self.slow_of(one.module) - self.slow(name):
                    yield f"{name}:{one.line} -> {one.module}"

    def slow_of(self, module: str) -> frozenset[str]:
        """The slow packages that importing `module` loads."""
        ours = self.slow(module) if module in self.paths else frozenset()
        return ours | (SLOW & {module, module.partition(".")[0]})

    def _slow(self, name: str) -> frozenset[str]:
        """The slow packages that importing a module of ours loads."""
        seen, waiting, slow = {name}, [name], set()
        while waiting:
            module = waiting.pop()
            slow |= SLOW & {module, module.partition(".")[0]}
            parents = [module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1)]
            found = [one.module for one in self.imports.get(module, ()) if not one.in_function]
            for each in {*parents, *found} - seen:
                seen.add(each)
                waiting.append(each)
        return frozenset(slow)

    def _imports(self, path: Path) -> Iterator[Import]:
        """All of a file but those for type checkers alone."""

        waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
        while waiting:
            node, in_function = waiting.pop()
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno, in_function) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                full = (f"{node.module}.{alias.name}" for alias in node.names)
                names = {one if one in self.paths or one in SLOW else node.module for one in full}
                yield from (Import(one, node.lineno, in_function) for one in sorted(names))
            elif isinstance(node, (ast.stmt, ast.Module, ast.ExceptHandler, ast.match_case)):  # no expression has any
                if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
                    inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                    waiting += ((child, inside) for child in ast.iter_child_nodes(node))


def python_files(root: Path) -> list[Path]:
    return [path for package in PACKAGES for path in (root / package).rglob("*.py")]


def _name(path: Path) -> str:
    """ "quant/formats/__init__.py" -> "quant.formats" """
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


LINT = str(REPO / "checks/floors.py")
CONTRACTS = ("packages", "floors of qbench", "floors of quant", "core and annex", "core and ranks")
CONTRACTS += ("no circles among siblings",)
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
    ("qbench.gate.check", "import qbench.search.cost", "qbench.gate.check -> qbench.search.cost"),
    ("qbench.serve.app", "import qbench.runtime.parallel.link", "qbench.serve.app -> qbench.runtime.parallel.link"),
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
