"""Imports of the modules of this project, read from their syntax."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
