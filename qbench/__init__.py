"""qbench: quantize a language model many ways, and measure what each costs on this machine."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("qbench-llm")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"
