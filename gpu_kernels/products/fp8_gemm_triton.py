"""The FP8 product in Triton; the maths is in fp8_gemm.py.

Split    one program a [BLOCK_M, BLOCK_N] tile of y, no split over K.
Program  walks K in steps of 128 features, a block of scales: FP8 tiles into the tensor cores, whose sum of a step is
         added in float32 registers, scaled where there are blocks.
Edges    rows past M or N read the last real row, whose results are never stored. Columns past K are masked.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products.fp8_gemm import BLOCK
from gpu_kernels.products.tiles_triton import tile_of
from gpu_kernels.products.w8a8_gemm_configs import Config
from gpu_kernels.products.w8a8_gemm_triton import scaled, store_rows

# Rows (largest M, candidates, the one to use first). Few tokens: the rate is the memory's, so narrow tiles, as many
# programs as N gives, and deep pipelines: 8 stages of 32 rows are 32 KB on their way, where 23 are needed on each
# multiprocessor. Many tokens: a tile's sum and its step's sum take 64 registers each over 256 threads; with 128 x 256
# they spill.
ROWS = [
    (16, [Config(16, 32, BLOCK, 1, 4, 8), Config(16, 64, BLOCK, 1, 4, 6)]),
    (64, [Config(64, 32, BLOCK, 8, 4, 6), Config(64, 64, BLOCK, 8, 4, 5)]),
    (None, [Config(128, 128, BLOCK, 8, 8, 4), Config(64, 128, BLOCK, 8, 4, 4)]),
]
CONFIGS = {90: ROWS, 100: ROWS}


def candidates(arch: int, num_tokens: int) -> list[Config]:
    """The row of CONFIGS for an architecture and M, the configuration to use first.

    raises  NotImplementedError if the architecture has no FP8 products
    """
    return _row(arch, num_tokens)[1]


def row_name(arch: int, num_tokens: int) -> str:
    largest = _row(arch, num_tokens)[0]
    return "any M" if largest is None else f"M<={largest}"


def _row(arch: int, num_tokens: int) -> tuple[int | None, list[Config]]:
    if arch not in CONFIGS:
        raise NotImplementedError(f"fp8_gemm: got sm_{arch}, expected one of {[f'sm_{known}' for known in CONFIGS]}")
    return next(row for row in CONFIGS[arch] if row[0] is None or num_tokens <= row[0])


def fp8_gemm_triton(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    config: Config | None = None,
) -> None:
    """Writes y [M, N] (shapes and dtypes as checked in fp8_gemm), with the tile shape the table has for it.

    x_scale, weight_scale  [M] and [N], or both of blocks
    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("fp8_gemm", x_q, fp8_gemm_kernel)
    config = config or chosen("fp8_gemm", row_name(arch, len(x_q)), candidates(arch, len(x_q)), x_q.device)
    fp8_gemm_launch(x_q, x_scale, weight_q, weight_scale, bias, y, config).run(y.device)


def fp8_gemm_launch(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    config: Config,
) -> Launch:
    """One program a [block_m, block_n] tile of y."""
    (M, K), N = x_q.shape, weight_q.shape[0]
    has_blocks = weight_scale.dim() == 2
    grid = (triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n),)
    arguments = {
        "x_q_ptr": x_q,
        "x_scale_ptr": x_scale,
        "weight_q_ptr": weight_q,
        "weight_scale_ptr": weight_scale,
        "bias_ptr": bias,
        "y_ptr": y,
        "M": M,
        "N": N,
        "K": K,
        "stride_xm": x_q.stride(0),
        "stride_xk": x_q.stride(1),
        "stride_xs": x_scale.stride(0),
        "stride_xb": x_scale.stride(1) if has_blocks else 0,
        "stride_wn": weight_q.stride(0),
        "stride_wk": weight_q.stride(1),
        "stride_ws": weight_scale.stride(0),
        "stride_wb": weight_scale.stride(1) if has_blocks else 0,
        "stride_b": 0 if bias is None else bias.stride(0),
        "stride_ym": y.stride(0),
        "stride_yn": y.stride(1),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": BLOCK,
        "GROUP_M": config.group_m,
        "HAS_BLOCKS": has_blocks,
        "EVEN_K": K % BLOCK == 0,
    }
    return Launch(fp8_gemm_kernel, grid, arguments, config.num_warps, config.num_stages)


@triton.jit
def fp8_gemm_kernel(
    # pointers
    x_q_ptr,
    x_scale_ptr,
    weight_q_ptr,
    weight_scale_ptr,
    bias_ptr,
    y_ptr,
    # sizes
    M,
    N,
    K,
    # strides, in elements
    stride_xm,
    stride_xk,
    stride_xs,
    stride_xb,
    stride_wn,
    stride_wk,
    stride_ws,
    stride_wb,
    stride_b,
    stride_ym,
    stride_yn,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    HAS_BLOCKS: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    i_m, i_n = tile_of(tl.program_id(0), N, M, BLOCK_N, BLOCK_M, GROUP_M)
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    o_x, o_w = tl.minimum(o_m, M - 1), tl.minimum(o_n, N - 1)
    p_x = x_q_ptr + o_x[:, None] * stride_xm + o_k[None, :] * stride_xk
    p_w = weight_q_ptr + o_w[None, :] * stride_wn + o_k[:, None] * stride_wk
    step = tl.full((), BLOCK_K, tl.int64)

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i_k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            b_x = tl.load(p_x)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w)  # [BLOCK_K, BLOCK_N]
        else:
            m_k = o_k < K - i_k * BLOCK_K
            b_x = tl.load(p_x, mask=m_k[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w, mask=m_k[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
        b_sum = tl.dot(b_x, b_w)
        if HAS_BLOCKS:
            b_x_scale = tl.load(x_scale_ptr + o_x * stride_xs + i_k * stride_xb)  # [BLOCK_M]
            b_w_scale = tl.load(weight_scale_ptr + o_w // BLOCK_K * stride_ws + i_k * stride_wb)  # [BLOCK_N]
            b_sum = b_sum * b_x_scale[:, None] * b_w_scale[None, :]
        b_acc += b_sum
        p_x += step * stride_xk
        p_w += step * stride_wk

    if not HAS_BLOCKS:
        b_acc = scaled(b_acc, x_scale_ptr, weight_scale_ptr, o_m, o_n, M, N, stride_xs, stride_ws)
    store_rows(b_acc, bias_ptr, y_ptr, o_m, o_n, M, N, stride_b, stride_ym, stride_yn)
