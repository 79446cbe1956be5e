"""The stub for type checkers has the names of the compiled extension."""

import ast
import inspect
from pathlib import Path

import cpu_kernels
from cpu_kernels import _ext

STUB = Path(cpu_kernels.__file__).with_name("_ext.pyi")


def declared(kind: type[ast.stmt]) -> set[str]:
    return {node.name for node in ast.parse(STUB.read_text()).body if isinstance(node, kind)}


def test_functions_and_classes_match_the_extension():
    names = [name for name in dir(_ext) if not name.startswith("_")]
    classes = {name for name in names if inspect.isclass(getattr(_ext, name))}
    functions = {name for name in names if callable(getattr(_ext, name))} - classes
    assert declared(ast.ClassDef) == classes
    assert declared(ast.FunctionDef) == functions


def test_constants_match_the_extension():
    constants = {name for name in dir(_ext) if name.isupper() and not name.startswith("_")}
    nodes = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.AnnAssign)]
    assert {node.target.id for node in nodes if isinstance(node.target, ast.Name)} == constants
