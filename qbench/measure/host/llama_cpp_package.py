"""The llama-cpp-python that models and kernels are compared with: this interpreter's, or another Python's.

QBENCH_LLAMA_PYTHON names a Python that has one, such as a build for this processor by another compiler. Its code runs
under this interpreter, with the packages that this one has.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from quant.errors import InputError
from quant.present import present

VARIABLE, NAME = "QBENCH_LLAMA_PYTHON", "llama_cpp"
FIND = f"import importlib.util; print(importlib.util.find_spec({NAME!r}).origin)"
# Clang's OpenMP threads wait 200 ms at full speed for their next loop, far into the other side's turn. The loops of one
# forward pass follow each other within microseconds.
CLANG_WAIT_MS = "5"


def package_folder() -> Path:
    """Folder of the package, which is not imported.

    raises   InputError if it is missing, or QBENCH_LLAMA_PYTHON names a Python without one
    """
    python = os.environ.get(VARIABLE)
    if python:
        try:
            answer = subprocess.run([python, "-c", FIND], capture_output=True, check=True, text=True, encoding="utf-8")
        except (OSError, subprocess.CalledProcessError) as error:
            raise InputError(f"{VARIABLE}={python} is no Python that has llama-cpp-python") from error
        return Path(answer.stdout.strip()).parent
    spec = importlib.util.find_spec(NAME)
    if spec is None or spec.origin is None:
        raise InputError(
            "llama-cpp-python is not installed, so there is nothing to compare with; pip install it, or name a Python "
            f"that has it by {VARIABLE}"
        )
    return Path(spec.origin).parent


def import_package() -> ModuleType:
    """The package `llama_cpp`. raises InputError as `package_folder` does"""
    folder = package_folder()
    sys.path.append(str(folder.parent))  # for packages that this interpreter lacks; its own come first
    spec = present(importlib.util.spec_from_file_location(NAME, folder / "__init__.py"))
    package = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(package)
    return package


def limit_waiting() -> None:
    """Threads of a build by Clang sleep before another side's turn, unless the user has set how long they wait."""
    os.environ.setdefault("KMP_BLOCKTIME", CLANG_WAIT_MS)
