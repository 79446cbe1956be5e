"""The C++ kernels, if this installation has built them."""

import importlib
from types import ModuleType


def import_kernels(name: str) -> ModuleType | None:
    """The module of cpu_kernels, None where the extension is not built: the NumPy and torch code is then the way.

    raises   ImportError if it is built, but from other sources than the module: no slower path is taken silently
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "cpu_kernels._ext":
            raise
        return None


def has_cpu_kernels() -> bool:
    """Whether the C++ extension is built; without it, all formats run, and are reported, as the reference."""
    return import_kernels("cpu_kernels") is not None
