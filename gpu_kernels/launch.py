"""A kernel with all that its launch takes: to run, or to compile for a GPU that is not there."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

# The interpreter has no architecture; it runs the tile shapes of this one.
INTERPRETED_AS = 90


@dataclass(frozen=True, slots=True)
class Launch:
    """The tensors among the arguments may be meta tensors where the launch is compiled and not run."""

    kernel: triton.KernelInterface[Any]  # a JITFunction, or an interpreter's
    grid: tuple[int, ...]
    arguments: dict  # by the kernel's parameter names
    num_warps: int
    num_stages: int = 1

    @property
    def options(self) -> dict:
        # Whether Triton fuses multiply and add by default depends on its version; unfused, all round in the same way.
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "enable_fp_fusion": False}

    def run(self, device: torch.device) -> None:
        with torch.cuda.device(device if device.type == "cuda" else -1):  # -1: the interpreter has no device
            self.kernel[self.grid](**self.arguments, **self.options)


def architecture(op: str, tensor: Tensor, kernel: object) -> int:
    """Compute capability times ten of the GPU that holds the tensor, or INTERPRETED_AS under the interpreter.

    kernel  result of triton.jit: a JITFunction compiles, anything else interprets
    raises  RuntimeError on a CPU tensor outside the interpreter, or a GPU tensor inside it
    """
    interpreted = not isinstance(kernel, triton.JITFunction)
    if tensor.is_cuda and not interpreted:
        return compute_capability(tensor.device)
    if interpreted and not tensor.is_cuda:
        return INTERPRETED_AS
    got = f"{tensor.device.type} tensors with TRITON_INTERPRET {'set' if interpreted else 'not set'}"
    raise RuntimeError(f"{op}: got {got}, expected GPU tensors without it, or CPU tensors and TRITON_INTERPRET=1")


def run_all(launches: Iterable[Launch], device: torch.device) -> None:
    """Run them one after the other on the device."""
    for launch in launches:
        launch.run(device)


def compute_capability(device: torch.device | str | int) -> int:
    """Compute capability times ten of a CUDA device: 80, 90, 100."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor
