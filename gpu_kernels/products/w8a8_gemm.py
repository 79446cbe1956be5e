"""The product of int8 activations and int8 weights, scaled per token and per channel.

    acc[m, n] = sum_k x_q[m, k] * weight_q[n, k]                          int32, exact
    y[m, n]   = acc[m, n] * x_scale[m] * weight_scale[n] + bias[n]        float32, then rounded to out_dtype

One scale for a whole tensor is that scale for every token or channel.

source  Dettmers et al. 2022, arXiv:2208.07339, vector-wise quantization: row and column scales factor out of the sum
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.products.split_k import Workspace

OUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# The largest product of two int8 is (-128)**2, and K of them must fit int32.
MAX_K = (2**31 - 1) // 128**2


def w8a8_gemm_ref(
    x_q: Tensor, x_scale: Tensor, weight_q: Tensor, weight_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """y [M, N] float64: the oracle. float64 holds every partial sum exactly (they are integers below 2**31).

    x_q      [M, K] int8   x_scale       [M] or [1] float32
    weight_q [N, K] int8   weight_scale  [N] or [1] float32   bias [N] float
    """
    acc = x_q.double() @ weight_q.double().T  # [M, N]
    y = acc * x_scale.double()[:, None] * weight_scale.double()[None, :]
    return y if bias is None else y + bias.double()


def w8a8_gemm(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
    impl: str | None = None,
) -> Tensor:
    """y [M, N] in out_dtype, by the implementation that `dispatch.IMPLEMENTATIONS` lists first for the device.

    x_q          [M, K] int8, any strides; K <= MAX_K
    x_scale      [M] float32, or [1] per tensor
    weight_q     [N, K] int8, any strides
    weight_scale [N] float32, or [1] per tensor
    bias         [N] float16, bfloat16 or float32
    workspace    None: allocated, and zeroed by one launch more, where the product is split over K
    impl         the name of another entry of the table
    raises       TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (out_dtype, K, device, impl)
    """
    _check(x_q, x_scale, weight_q, weight_scale, bias, out_dtype)
    run = implementation("w8a8_gemm", x_q.device.type, impl)
    y = torch.empty(x_q.shape[0], weight_q.shape[0], dtype=out_dtype, device=x_q.device)  # [M, N]
    if y.numel():
        scales = x_scale.expand(len(x_q)), weight_scale.expand(len(weight_q))
        run(x_q, scales[0], weight_q, scales[1], bias, y, workspace)
    return y


def w8a8_gemm_reference(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale, bias))


def _check(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
) -> None:
    if out_dtype not in OUT_DTYPES:
        raise NotImplementedError(f"w8a8_gemm: got out_dtype {out_dtype}, expected one of {OUT_DTYPES}")
    if x_q.dim() != 2 or weight_q.dim() != 2 or x_q.shape[1] != weight_q.shape[1]:
        shapes = f"x_q {list(x_q.shape)} and weight_q {list(weight_q.shape)}"
        raise ValueError(f"w8a8_gemm: got {shapes}, expected [M, K] and [N, K]")
    (M, K), N = x_q.shape, weight_q.shape[0]
    if K > MAX_K:
        raise NotImplementedError(f"w8a8_gemm: got K = {K}, expected at most {MAX_K}, past which int32 can overflow")
    operands = [
        ("x_q", x_q, [M, K], (torch.int8,)),
        ("x_scale", x_scale, [M], (torch.float32,)),
        ("weight_q", weight_q, [N, K], (torch.int8,)),
        ("weight_scale", weight_scale, [N], (torch.float32,)),
    ]
    if bias is not None:
        operands.append(("bias", bias, [N], OUT_DTYPES))
    for name, tensor, shape, dtypes in operands:
        if tensor.dtype not in dtypes:
            raise TypeError(f"w8a8_gemm: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")
        if list(tensor.shape) != shape and not (name.endswith("scale") and list(tensor.shape) == [1]):
            raise ValueError(f"w8a8_gemm: got {name} {list(tensor.shape)}, expected {shape}")
        if tensor.device != x_q.device:
            raise ValueError(f"w8a8_gemm: got {name} on {tensor.device} and x_q on {x_q.device}, expected one device")
