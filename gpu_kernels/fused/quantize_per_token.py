"""Symmetric int8 codes of activations, one scale per token.

    x_scale[m] = max(absmax_k |x[m, k]| / 127, 2**-126)
    x_q[m, k]  = round(x[m, k] / x_scale[m]), halves to even, in [-127, 127]        x ~= x_scale * x_q

The floor is the smallest normal float32, so rows of zeros divide safely. A row that holds NaN or inf has no such
scale: x_scale is NaN there and x_q is 0, so that its outputs are NaN and not plausible numbers.

source  Dettmers et al. 2022, arXiv:2208.07339, absmax quantization, row by row
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
QMAX = 127
SMALLEST_SCALE = 2.0**-126


def quantize_per_token_ref(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x_q [M, K] int8, x_scale [M] float32) in float32, the kernel's own precision: codes compare exactly.

    x  [M, K] float
    """
    if x.shape[1] == 0:
        return x.to(torch.int8), x.new_full((x.shape[0],), SMALLEST_SCALE, dtype=torch.float32)
    x = x.float()
    absmax = x.abs().amax(dim=1)  # [M]
    # By a tensor: by a number, torch on a GPU multiplies with the rounded reciprocal instead of dividing.
    x_scale = (absmax / torch.full_like(absmax, QMAX)).clamp(min=SMALLEST_SCALE).where(absmax.isfinite(), torch.nan)
    x_q = (x / x_scale[:, None]).round().nan_to_num(nan=0.0)  # [M, K]
    return x_q.to(torch.int8), x_scale


def quantize_per_token(x: Tensor, *, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(x_q [M, K] int8, x_scale [M] float32), by the implementation that the table lists first for the device.

    x       [M, K] float16, bfloat16 or float32, any strides
    impl    the name of another entry of `dispatch.IMPLEMENTATIONS`
    raises  TypeError (dtype), ValueError (shape), NotImplementedError (device, impl)
    """
    if x.dtype not in IN_DTYPES:
        raise TypeError(f"quantize_per_token: got x {x.dtype}, expected {' or '.join(map(str, IN_DTYPES))}")
    if x.dim() != 2:
        raise ValueError(f"quantize_per_token: got x {list(x.shape)}, expected [M, K]")
    run = implementation("quantize_per_token", x.device.type, impl)
    x_q = torch.empty(x.shape, dtype=torch.int8, device=x.device)  # [M, K]
    x_scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)  # [M]
    if x.shape[0]:
        run(x, x_q, x_scale)
    return x_q, x_scale


def quantize_per_token_reference(x: Tensor, x_q: Tensor, x_scale: Tensor) -> None:
    """Writes the oracle's result into x_q [M, K] and x_scale [M]: the table's entry "reference"."""
    q, scale = quantize_per_token_ref(x)
    x_q.copy_(q)
    x_scale.copy_(scale)
