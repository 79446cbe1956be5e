"""Models larger than memory: packed weights stream from a file through a region of memory of bounded size."""

from qbench.runtime.offload.load import OffloadedModel, load_offloaded

__all__ = ["OffloadedModel", "load_offloaded"]
