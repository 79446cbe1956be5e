"""Where integer formats' fast ways come from: the C++ kernels, if they are built."""

from types import ModuleType

from quant.extension import import_kernels


def integer_kernels() -> ModuleType | None:
    """cpu_kernels.group_quant, None where this installation has no extension: the NumPy codecs are then the way."""
    return import_kernels("cpu_kernels.group_quant")
