"""Where a kernel is about to run."""

import torch
import triton
from torch import Tensor

# The interpreter has no architecture; it runs the tile shapes of this one.
INTERPRETED_AS = 90


def architecture(op: str, tensor: Tensor, kernel: object) -> int:
    """Compute capability times ten of the GPU that holds the tensor, or INTERPRETED_AS under the interpreter.

    kernel  what triton.jit made of the kernel: a JITFunction compiles, anything else interprets
    raises  RuntimeError on a CPU tensor outside the interpreter, or a GPU tensor inside it
    """
    interpreted = not isinstance(kernel, triton.JITFunction)
    if tensor.is_cuda and not interpreted:
        major, minor = torch.cuda.get_device_capability(tensor.device)
        return 10 * major + minor
    if interpreted and not tensor.is_cuda:
        return INTERPRETED_AS
    got = f"{tensor.device.type} tensors with TRITON_INTERPRET {'set' if interpreted else 'not set'}"
    raise RuntimeError(f"{op}: got {got}, expected GPU tensors without it, or CPU tensors and TRITON_INTERPRET=1")
