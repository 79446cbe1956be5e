"""Place: properties of a device that torch and gpu_kernels need."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.dispatch import force
from gpu_kernels.graphs import Capture, eagerly
from qbench.run.choices import INTERPRETER, check_device

FLOATS = {torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True, slots=True)
class Place:
    """name     one of qbench.run.choices.DEVICES
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

    def send(self, values: np.ndarray) -> Tensor:
        """Copy to the device without waiting for its work: pageable memory has been read when this returns."""
        return torch.from_numpy(values).to(self.torch_name, non_blocking=True)

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
