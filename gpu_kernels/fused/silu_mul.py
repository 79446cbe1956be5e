"""SiLU of the gate times the up projection, and quantized for the down projection, in one pass.

    y[m, k] = gate[m, k] / (1 + exp(-gate[m, k])) * up[m, k]                    float32

and y rounded to the inputs' type, or int8 or FP8 codes with one scale a token (row_codes.py).

source  Shazeer 2020, arXiv:2002.05202, eq. 6 (SwiGLU)
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.fused.row_codes import CODE_DTYPES, check_quantize, row_codes_ref

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_K = 32768  # where rows are quantized they are held in registers: 32 a thread of 1024


def silu_mul_ref(gate: Tensor, up: Tensor) -> Tensor:
    """y [M, K] float64: the oracle."""
    return gate.double() / (1 + (-gate.double()).exp()) * up.double()


def silu_mul(
    gate: Tensor, up: Tensor, *, quantize: str | None = None, impl: str | None = None
) -> tuple[Tensor, Tensor | None]:
    """(y [M, K] in the inputs' type or its codes, scale [M] float32 or None).

    gate, up  [M, K] float16, bfloat16 or float32, any strides: two halves of one product's result, say
    quantize  None, "int8" or "fp8" (e4m3), which take K <= MAX_K
    raises    TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K, quantize, device, impl)
    """
    _check(gate, up, quantize)
    run = implementation("silu_mul", gate.device.type, impl)
    y = torch.empty(gate.shape, dtype=CODE_DTYPES.get(quantize, gate.dtype), device=gate.device)  # [M, K]
    scale = torch.empty(gate.shape[0], device=gate.device) if quantize else None  # [M]
    if gate.numel():
        run(gate, up, quantize, y, scale)
    return y, scale


def silu_mul_reference(gate: Tensor, up: Tensor, quantize: str | None, y: Tensor, scale: Tensor | None) -> None:
    """Writes the oracle's result into y and scale: the table's entry "reference"."""
    exact = silu_mul_ref(gate, up)
    if quantize is None:
        y.copy_(exact)
        return
    codes, row_scale = row_codes_ref(exact.float(), quantize)
    y.copy_(codes)
    scale.copy_(row_scale)


def _check(gate: Tensor, up: Tensor, quantize: str | None) -> None:
    check_quantize("silu_mul", quantize)
    if gate.dtype not in IN_DTYPES or up.dtype != gate.dtype:
        got = f"gate {gate.dtype} and up {up.dtype}"
        raise TypeError(f"silu_mul: got {got}, expected one of {' or '.join(map(str, IN_DTYPES))} for both")
    if gate.dim() != 2 or up.shape != gate.shape or (quantize and not gate.shape[1]):
        got = f"gate {list(gate.shape)} and up {list(up.shape)}"
        raise ValueError(f"silu_mul: got {got}, expected [M, K] alike, with K of 1 or more where it is quantized")
    if up.device != gate.device:
        raise ValueError(f"silu_mul: got up on {up.device} and gate on {gate.device}, expected one device")
    if quantize and gate.shape[1] > MAX_K:
        raise NotImplementedError(f"silu_mul: got K = {gate.shape[1]} to quantize, expected at most {MAX_K}")
