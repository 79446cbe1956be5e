"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("qbench-llm")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"
