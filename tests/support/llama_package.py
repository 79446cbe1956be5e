"""The llama.cpp that the project compares with, for tests that need it."""

import pytest

from qbench.measure.host.llama_cpp_package import package_folder
from quant.errors import InputError


def skip_without_llama_cpp() -> None:
    try:
        package_folder()
    except InputError:
        pytest.skip("llama-cpp-python is not installed")
