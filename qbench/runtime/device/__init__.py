"""The runtime on a GPU: weights in the layouts of gpu_kernels, keys and values in pages, decode steps from graphs."""

from qbench.runtime.device.load import load_device_model
from qbench.runtime.device.model import DeviceModel

__all__ = ["DeviceModel", "load_device_model"]
