"""Codes of activations with one scale per token, as int8 or FP8 e4m3: row_codes.py has the formula.

The smallest scale is the smallest normal float32, so rows of zeros divide safely. A row that holds NaN or inf has no
scale: x_scale is NaN there and x_q is 0, so that its outputs are NaN and not plausible numbers.

source  Dettmers et al. 2022, arXiv:2208.07339, absmax quantization, row by row
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.fused.row_codes import CODE_DTYPES, row_codes_ref

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def quantize_per_token_ref(x: Tensor, codes: str = "int8") -> tuple[Tensor, Tensor]:
    """(x_q [M, K], x_scale [M] float32) in float32, the kernel's own precision: codes compare exactly.

    x  [M, K] float
    """
    return row_codes_ref(x.float(), codes)


def quantize_per_token(x: Tensor, codes: str = "int8", *, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(x_q [M, K], x_scale [M] float32), by the implementation that the table lists first for the device.

    x       [M, K] float16, bfloat16 or float32, any strides
    codes   "int8" or "fp8"
    impl    the name of another entry of `dispatch.IMPLEMENTATIONS`
    raises  TypeError (dtype), ValueError (shape), NotImplementedError (codes, device, impl)
    """
    if codes not in CODE_DTYPES:
        raise NotImplementedError(f"quantize_per_token: got codes {codes!r}, expected one of {list(CODE_DTYPES)}")
    if x.dtype not in IN_DTYPES:
        raise TypeError(f"quantize_per_token: got x {x.dtype}, expected {' or '.join(map(str, IN_DTYPES))}")
    if x.dim() != 2:
        raise ValueError(f"quantize_per_token: got x {list(x.shape)}, expected [M, K]")
    run = implementation("quantize_per_token", x.device.type, impl)
    x_q = torch.empty(x.shape, dtype=CODE_DTYPES[codes], device=x.device)  # [M, K]
    x_scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)  # [M]
    if x.shape[0]:
        run(x, x_q, x_scale)
    return x_q, x_scale


def quantize_per_token_reference(x: Tensor, x_q: Tensor, x_scale: Tensor) -> None:
    """Writes the oracle's result into x_q [M, K] and x_scale [M]: the table's entry "reference"."""
    q, scale = quantize_per_token_ref(x, "int8" if x_q.dtype == torch.int8 else "fp8")
    x_q.copy_(q)
    x_scale.copy_(scale)
