"""Which llama-cpp-python is compared with: this interpreter's, or the one of another Python."""

import os
import sys

import pytest
from support.data import written

from qbench.measure.host import llama_cpp_package as module
from qbench.measure.host.llama_cpp_package import VARIABLE, import_package, limit_waiting, package_folder
from quant.errors import InputError


@pytest.fixture
def other_python(tmp_path, monkeypatch):
    """The folder of packages of another Python, which the variable names."""
    folder = tmp_path / "packages"
    folder.mkdir()
    script = written(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(script))
    return folder


def test_the_package_of_the_named_python_is_imported(other_python, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(module, "NAME", "llama_of_a_test")
    monkeypatch.setattr(module, "FIND", module.FIND.replace("llama_cpp", "llama_of_a_test"))
    package = other_python / "llama_of_a_test"
    package.mkdir()
    written(other_python / "needed_by_it.py", "VERSION = '7'\n")
    written(package / "inner.py", "from needed_by_it import VERSION\n")
    written(package / "__init__.py", "from .inner import VERSION as __version__\n")
    assert package_folder() == package and "llama_of_a_test" not in sys.modules
    try:
        assert import_package().__version__ == "7"
    finally:
        for name in ("llama_of_a_test", "llama_of_a_test.inner", "needed_by_it"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("lacks", ["a Python", "the package"])
def test_a_python_without_the_package_is_refused(other_python, monkeypatch, lacks):
    if lacks == "a Python":
        monkeypatch.setenv(VARIABLE, "/nowhere/python")
    monkeypatch.setattr(module, "FIND", module.FIND.replace("llama_cpp", "llama_of_a_test"))
    with pytest.raises(InputError, match=f"{VARIABLE}=/.*python is no Python that has llama-cpp-python"):
        package_folder()


@pytest.mark.parametrize("given, left", [(None, module.CLANG_WAIT_MS), ("77", "77")], ids=["unset", "set"])
def test_threads_of_clang_wait_less_than_a_turn_unless_the_user_decides(monkeypatch, given, left):
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    if given:
        monkeypatch.setenv("KMP_BLOCKTIME", given)
    limit_waiting()
    assert os.environ.pop("KMP_BLOCKTIME") == left
