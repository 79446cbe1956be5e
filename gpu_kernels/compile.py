"""Compiling a kernel for a GPU that is not there: to a cubin, with what the assembler says of it."""

import re
import subprocess
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from gpu_kernels.launch import Launch

POINTERS = {
    torch.int8: "*i8",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
}


def compile_launch(launch: Launch, arch: int) -> CompiledKernel:
    """The kernel as this launch would compile it; `.asm["cubin"]` holds the machine code.

    launch  may hold meta tensors, which count as 16-byte aligned
    arch    compute capability times ten
    """
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        # As the launcher specializes: None and 1 are constants, a multiple of 16 is known to be one.
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
            signature[parameter.name] = "constexpr"
            constants[(index,)] = value
            continue
        is_tensor = isinstance(value, torch.Tensor)
        signature[parameter.name] = POINTERS[value.dtype] if is_tensor else "i32" if value < 2**31 else "i64"
        if is_tensor or value % 16 == 0:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=launch.options)


def resource_usage(cubin: bytes, folder: Path) -> dict[str, int]:
    """What one thread or program of the cubin takes, e.g. {"REG": 168, "STACK": 0, "LOCAL": 0, ...}.

    STACK and LOCAL are bytes a thread spills. Reads with the cuobjdump that comes with Triton.
    """
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    told = subprocess.run([cuobjdump, "--dump-resource-usage", path], capture_output=True, text=True, check=True)
    return {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", told.stdout)}
