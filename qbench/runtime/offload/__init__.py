"""Models larger than memory: packed weights stream from a file through a region of memory of bounded size."""

from qbench.runtime.offload.budget import Use
from qbench.runtime.offload.load import OffloadedModel, check_limit, load_offloaded

__all__ = ["OffloadedModel", "Use", "check_limit", "load_offloaded"]
