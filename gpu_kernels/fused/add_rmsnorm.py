"""The residual added, RMS-normalized, and quantized for the product that follows, in one pass.

    h[m, k] = x[m, k] + residual[m, k]                                   float32, rounded to x's type: the new residual
    y[m, k] = h[m, k] / sqrt(mean_k h[m, k]**2 + eps) * weight[k]        float32; weight + 1 where plus_one (Gemma)

and y rounded to x's type, or int8 or FP8 codes with one scale a token (row_codes.py).

source  Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.fused.row_codes import CODE_DTYPES, check_quantize, row_codes_ref

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_K = 32768  # a row is held in registers: 32 a thread of 1024


def add_rmsnorm_ref(
    x: Tensor, weight: Tensor, *, residual: Tensor | None = None, eps: float = 1e-6, plus_one: bool = False
) -> tuple[Tensor, Tensor]:
    """(y [M, K] float64, h [M, K] in x's type): the oracle. h is the one rounding that all must share."""
    h = x if residual is None else (x.float() + residual.float()).to(x.dtype)
    exact = h.double()
    factor = weight.double() + plus_one
    return exact * (exact.square().mean(dim=1, keepdim=True) + eps).rsqrt() * factor, h


def add_rmsnorm(
    x: Tensor,
    weight: Tensor,
    *,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    plus_one: bool = False,
    quantize: str | None = None,
    impl: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """(y [M, K] in x's type or its codes, scale [M] float32 or None, h [M, K] in x's type; without a residual, x).

    x         [M, K] float16, bfloat16 or float32, rows of any stride, 1 <= K <= MAX_K
    weight    [K] float16, bfloat16 or float32
    residual  as x
    quantize  None, "int8" or "fp8" (e4m3)
    raises    TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K, quantize, device, impl)
    """
    _check(x, weight, residual, quantize)
    run = implementation("add_rmsnorm", x.device.type, impl)
    y = torch.empty(x.shape, dtype=CODE_DTYPES.get(quantize, x.dtype), device=x.device)  # [M, K]
    scale = torch.empty(x.shape[0], device=x.device) if quantize else None  # [M]
    h = x if residual is None else torch.empty_like(x)
    if x.shape[0]:
        run(x, weight, residual, eps, plus_one, quantize, y, scale, h)
    return y, scale, h


def add_rmsnorm_reference(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None,
    eps: float,
    plus_one: bool,
    quantize: str | None,
    y: Tensor,
    scale: Tensor | None,
    h: Tensor,
) -> None:
    """Writes the oracle's result into y, scale and h: the table's entry "reference"."""
    exact, new_residual = add_rmsnorm_ref(x, weight, residual=residual, eps=eps, plus_one=plus_one)
    if residual is not None:
        h.copy_(new_residual)
    if quantize is None:
        y.copy_(exact)
        return
    codes, row_scale = row_codes_ref(exact.float(), quantize)
    y.copy_(codes)
    scale.copy_(row_scale)


def _check(x: Tensor, weight: Tensor, residual: Tensor | None, quantize: str | None) -> None:
    check_quantize("add_rmsnorm", quantize)
    given = {"x": x, "weight": weight} | ({} if residual is None else {"residual": residual})
    for name, tensor in given.items():
        if tensor.dtype not in IN_DTYPES:
            raise TypeError(f"add_rmsnorm: got {name} {tensor.dtype}, expected {' or '.join(map(str, IN_DTYPES))}")
        if tensor.device != x.device:
            raise ValueError(f"add_rmsnorm: got {name} on {tensor.device} and x on {x.device}, expected one device")
    if x.dim() != 2 or not x.shape[1]:
        raise ValueError(f"add_rmsnorm: got x {list(x.shape)}, expected [M, K] with K of 1 or more")
    if x.shape[1] > MAX_K:
        raise NotImplementedError(f"add_rmsnorm: got K = {x.shape[1]}, expected at most {MAX_K}")
    if list(weight.shape) != [x.shape[1]]:
        raise ValueError(f"add_rmsnorm: got weight {list(weight.shape)}, expected [{x.shape[1]}]")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        got = f"residual {residual.dtype} {list(residual.shape)}"
        raise ValueError(f"add_rmsnorm: got {got}, expected x's {x.dtype} {list(x.shape)}")
