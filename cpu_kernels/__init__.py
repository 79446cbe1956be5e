"""C++ kernels for the CPU, chosen at run time by what this machine can do."""

from cpu_kernels._ext import features

__all__ = ["features"]
