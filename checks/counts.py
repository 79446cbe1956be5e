"""Sizes of the code, which may fall and must not rise: `python -m checks.counts` prints them with their limits.

A change that lowers a count lowers its limit in `LIMITS`. A change that has to exceed one says why in its commit.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import grimp

PACKAGES = ("qbench", "quant", "cpu_kernels", "gpu_kernels")
CODE = (".py", ".cpp", ".h", ".inl")
SMALL = 30  # lines
POLICIES = Path("qbench/policies")


@cache
def code_files() -> list[Path]:
    """Tracked files of code in the four packages."""
    listed = subprocess.run(["git", "ls-files", *PACKAGES], capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.splitlines() if name.endswith(CODE) and Path(name).is_file()]


@cache
def num_lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def num_reached(module: str) -> int:
    """Modules that one module imports, directly or not, also within functions."""
    return len(imports().find_upstream_modules(module))


def policy_classes() -> set[str]:
    """Names of the classes in `qbench/policies` that derive from `CachePolicy`, and its own."""
    bases = {
        node.name: {ast.unparse(base).split("[")[0] for base in node.bases}
        for path in code_files()
        if path.parent == POLICIES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {"CachePolicy"}
    while more := {name for name, its in bases.items() if its & found} - found:
        found |= more
    return found


def class_questions(text: ast.AST, classes: set[str]) -> Iterator[ast.Call]:
    """Calls of isinstance that name one of these classes."""
    for node in ast.walk(text):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2:
            if classes & {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}:
                yield node


def num_policy_questions() -> int:
    classes = policy_classes()
    outside = [path for path in code_files() if path.suffix == ".py" and POLICIES not in path.parents]
    return sum(1 for path in outside for _ in class_questions(tree(path), classes))


def num_floors() -> int:
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(len(each["layers"]) for each in contracts if each["name"] == "floors of qbench")


def num_entries(folder: str) -> int:
    """Files and folders right in a folder, without `__init__.py`."""
    parts = len(Path(folder).parts)
    under = {path.parts[parts] for path in code_files() if path.is_relative_to(folder)}
    return len(under - {"__init__.py"})


COUNTS: dict[str, Callable[[], int]] = {
    "files": lambda: len(code_files()),
    "lines": lambda: sum(map(num_lines, code_files())),
    "Python files of qbench under 30 lines": lambda: sum(
        path.suffix == ".py" and path.parts[0] == "qbench" and num_lines(path) < SMALL for path in code_files()
    ),
    "entries of qbench/runtime/caches": lambda: num_entries("qbench/runtime/caches"),
    "floors of qbench": num_floors,
    "isinstance of policies outside their folder": num_policy_questions,
    "modules that `qbench info` reaches": lambda: num_reached("qbench.cli.info"),
    "modules that `qbench quantize` reaches": lambda: num_reached("qbench.cli.quantize"),
}
LIMITS = {
    "files": 1_379,
    "lines": 137_400,
    "Python files of qbench under 30 lines": 69,
    "entries of qbench/runtime/caches": 15,
    "floors of qbench": 13,
    "isinstance of policies outside their folder": 0,
    "modules that `qbench info` reaches": 122,
    "modules that `qbench quantize` reaches": 314,
}


def main() -> int:
    """1 if a count exceeds its limit."""
    exceeded = 0
    for name, count in COUNTS.items():
        found, limit = count(), LIMITS[name]
        exceeded += found > limit
        print(f"{found:8,}  of {limit:8,}  {name}{'  EXCEEDED' if found > limit else ''}")
    return int(exceeded > 0)


if __name__ == "__main__":
    sys.exit(main())
