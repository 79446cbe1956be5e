"""Whether the kernels are right on a device, before any of them is timed."""

import torch
from torch import Tensor

from gpu_kernels.contenders import operands, run_quantizer, run_w8a8
from gpu_kernels.launch import architecture
from gpu_kernels.quantize_per_token import quantize_per_token_ref
from gpu_kernels.w8a8_gemm import OUT_DTYPES, w8a8_gemm_ref
from gpu_kernels.w8a8_gemm_configs import candidates
from gpu_kernels.w8a8_gemm_triton import w8a8_gemm_kernel


def wrong_results(shapes: list[tuple[int, int, int]], device: str) -> list[str]:
    """One line for each kernel, shape, type and tile shape whose result is not its oracle's; none if all are right."""
    wrong = []
    for M, N, K in shapes:
        s = operands(M, N, K, device)
        expected = w8a8_gemm_ref(s["x_q"], s["x_scale"], s["weight_q"], s["weight_scale"])
        for config in candidates(architecture("w8a8_gemm", s["x_q"], w8a8_gemm_kernel), M):
            for dtype in OUT_DTYPES:
                s["y"] = torch.full((M, N), torch.nan, dtype=dtype, device=device)
                run_w8a8(s, config)
                if not agrees(s["y"], expected):
                    wrong.append(f"w8a8_gemm M={M} N={N} K={K} {dtype} {config}")
        run_quantizer(s)
        codes, scale = quantize_per_token_ref(s["x"])
        if not (torch.equal(s["codes"], codes) and torch.equal(s["codes_scale"], scale)):
            wrong.append(f"quantize_per_token M={M} K={K}")
    return wrong


def agrees(y: Tensor, expected: Tensor) -> bool:
    """y is expected, within its type's rounding (of subnormals too) and three roundings in float32."""
    about = torch.finfo(y.dtype)
    bound = (about.eps / 2 + 3 * 2**-24) * expected.abs() + about.smallest_normal * about.eps
    return bool(((y.double() - expected).abs() <= bound).all())
