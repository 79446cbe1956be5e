"""Place: what torch and gpu_kernels need to know of a device."""

from dataclasses import dataclass

import torch

from gpu_kernels.dispatch import force
from gpu_kernels.graphs import Capture, eagerly
from qbench.devices import INTERPRETER, check_device

FLOATS = {torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True, slots=True)
class Place:
    """name     one of qbench.devices
    torch_name  where torch keeps its tensors
    dtype       of activations, and of weights that are no codes
    capture     of decode steps; None: CUDA graphs
    """

    name: str
    torch_name: str
    dtype: torch.dtype
    capture: Capture | None

    @property
    def float_name(self) -> str:
        return FLOATS[self.dtype]

    def wait(self) -> None:
        """Until all that was asked of it is done."""
        if self.torch_name == "cuda":
            torch.cuda.synchronize()


def place_of(name: str) -> Place:
    """raises InputError as `check_device`"""
    check_device(name)
    if name == INTERPRETER:
        force("triton")  # on CPU tensors the oracles come first
        return Place(name, "cpu", torch.float16, eagerly)  # the interpreter multiplies bfloat16 wrongly
    return Place(name, "cuda", torch.bfloat16, None)
