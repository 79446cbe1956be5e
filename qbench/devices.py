"""Where a model runs, by the names that users give.

cpu          this machine's processor, by cpu_kernels
cuda         an NVIDIA GPU, by gpu_kernels
interpreter  gpu_kernels by Triton's interpreter on the CPU: shows that they are right, and is slow beyond use
"""

import os
from importlib.util import find_spec

from qbench.compute import FAST
from qbench.nearest import nearest
from quant.errors import InputError

CPU, CUDA, INTERPRETER = DEVICES = ("cpu", "cuda", "interpreter")
INTERPRET = "TRITON_INTERPRET"  # Triton reads it as it is imported
GPUS = ((8, 0), (9, 0), (10, 0))  # compute capabilities that the kernels have tile shapes for


def check_device_name(name: str) -> None:
    """raises InputError for a name that is not in DEVICES"""
    if name not in DEVICES:
        raise InputError(f"device {name!r} is unknown; known: {', '.join(DEVICES)}{nearest(name, DEVICES)}")


def check_device(name: str, compute: str = FAST) -> None:
    """raises InputError for a name that is not in DEVICES, a device that is not here, or a compute that it lacks"""
    check_device_name(name)
    if name == CPU:
        return
    if compute != FAST:
        raise InputError(f"compute {compute} runs on the CPU alone; device {name} has {FAST}")
    if find_spec("triton") is None:
        raise InputError(f"device {name} needs triton, which is not installed; pip install triton")
    if name == INTERPRETER:
        if os.environ.get(INTERPRET) != "1":
            raise InputError(f"device {name} needs {INTERPRET}=1 in the environment")
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"device {name}: there is no CUDA device that torch can use here; run this where there is one")
    capability = torch.cuda.get_device_capability()
    if capability not in GPUS:
        known = ", ".join(f"{major}.{minor}" for major, minor in GPUS)
        got = "{}.{}".format(*capability)
        raise InputError(f"device {name}: got a GPU of compute capability {got}, expected one of {known}")
