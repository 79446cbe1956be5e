"""The C++ kernels, where this installation has them built."""

import importlib
from types import ModuleType


def import_kernels(name: str) -> ModuleType | None:
    """The module of cpu_kernels, None where the extension is not built: the NumPy and torch code is then the way.

    raises   ImportError where it is built, but of other sources than the module: no slower path is taken silently
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "cpu_kernels._ext":
            raise
        return None
