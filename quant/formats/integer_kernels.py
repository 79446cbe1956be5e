"""Where integer formats' fast ways come from: the C++ kernels, if they are built."""

from types import ModuleType


def integer_kernels() -> ModuleType | None:
    """cpu_kernels.integers, None where this installation has no extension: the NumPy codecs are then the way."""
    try:
        from cpu_kernels import integers
    except ImportError:
        return None
    return integers
