"""The GGUF product in Triton; the maths is in gguf_gemm.py, the layouts in gguf_layout.py. Q8_0 is weight_only_gemm's.

Split    one program a [BLOCK_N, BLOCK_M] tile of y transposed, or one of NUM_SPLITS shares of its input features.
Program  walks blocks of four planes; a plane is a group of features. Its codes become floats in registers and meet
         their activations in the tensor cores, and so do Q4_K's minima, the same for all of a group's features: that
         sums the activations of each group without a pass over them.
Edges    rows past N read the last real row and are never stored. Tokens past M read as 0. Rows are whole super-blocks.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about iteration over tl.range, literals that are declared
# constexpr, literals that are passed as constexpr, methods of constexpr results and names bound under a constexpr
# condition.
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportPossiblyUnboundVariable=false
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.gemm import weight_only_gemm_triton
from gpu_kernels.gemm.gguf_gemm import Operands
from gpu_kernels.gemm.split_k import share_tiles
from gpu_kernels.gemm.tiles_triton import store_or_split, tile_of
from gpu_kernels.gemm.weight_only_configs import Config, row
from gpu_kernels.gemm.words_layout import WordsWeight
from gpu_kernels.gemm.words_triton import code_offset, codes, codes_of_6_bits
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def gguf_gemm_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [M, N], with the tile shape that the table has for it."""
    TUNED.run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row("gguf_gemm", arch, len(operands.x))


def launches(operands: Operands, y: Tensor, config: Config, arch: int) -> list[Launch]:
    """One program a share of a tile."""
    x, weight = operands.x, operands.weight
    if isinstance(weight, WordsWeight):
        return weight_only_gemm_triton.launches(operands, y, config, arch)
    M, N, num_blocks = x.shape[0], weight.num_rows, weight.codes.shape[0]
    shares = share_tiles(operands.workspace, config, arch, (M, N), num_blocks, x)
    arguments = {
        "x_ptr": x,
        "codes_ptr": weight.codes,
        "high_ptr": weight.high,
        "scales_ptr": weight.scales,
        "minima_ptr": weight.minima,
        "d_ptr": weight.d,
        "dmin_ptr": weight.dmin,
        "bias_ptr": operands.dense_bias(),
        "y_ptr": y,
        "partial_ptr": shares.partial,
        "arrived_ptr": shares.arrived,
        "M": M,
        "N": N,
        "num_blocks": num_blocks,
        "blocks_per_split": shares.steps_per_split,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_ym": y.stride(0),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "PLANE_K": weight.plane_k,
        "GROUP_N": config.group_n,
        "NUM_SPLITS": shares.num_splits,
        "COMPILED": isinstance(k_quant_gemm_kernel, triton.JITFunction),
    }
    return [Launch(k_quant_gemm_kernel, shares.grid, arguments, config.num_warps, config.num_stages)]


@triton.jit
def k_quant_gemm_kernel(
    # pointers
    x_ptr,
    codes_ptr,
    high_ptr,
    scales_ptr,
    minima_ptr,
    d_ptr,
    dmin_ptr,
    bias_ptr,
    y_ptr,
    partial_ptr,
    arrived_ptr,
    # sizes
    M,
    N,
    num_blocks,
    blocks_per_split,
    # strides, in elements
    stride_xm,
    stride_xk,
    stride_ym,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PLANE_K: tl.constexpr,
    GROUP_N: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    COMPILED: tl.constexpr,
):
    i_tile, i_split = tl.program_id(0), tl.program_id(1)
    i_n, i_m = tile_of(i_tile, M, N, BLOCK_M, BLOCK_N, GROUP_N)
    dtype = x_ptr.dtype.element_ty
    ZERO: tl.constexpr = code_offset(x_ptr.dtype.element_ty, 4) - 8.0  # the value of bits 0, as a float

    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_k = tl.arange(0, PLANE_K).to(tl.int64)
    o_row = tl.minimum(o_n, N - 1)
    m_m = (o_m < M)[None, :]
    first = i_split.to(tl.int64) * blocks_per_split
    last = tl.minimum(first + blocks_per_split, num_blocks)
    o_words = first * N * PLANE_K + o_row[:, None] * PLANE_K + o_k[None, :]
    p_x = x_ptr + o_m[None, :] * stride_xm
    step = tl.full((), PLANE_K, tl.int64) * N

    b_acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for i_block in range(first, last):
        b_w = tl.load(codes_ptr + o_words)  # [BLOCK_N, PLANE_K]
        if high_ptr is not None:
            b_h = tl.load(high_ptr + o_words).to(tl.int16)  # [BLOCK_N, PLANE_K]
        o_super = i_block * (4 * PLANE_K) // 256 * N + o_row
        b_d = tl.load(d_ptr + o_super).to(tl.float32)  # [BLOCK_N]
        b_minima = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for i_plane in tl.static_range(4):
            o_feature = i_block * (4 * PLANE_K) + i_plane * PLANE_K + o_k
            b_x = tl.load(p_x + o_feature[:, None] * stride_xk, mask=m_m, other=0.0)  # [PLANE_K, BLOCK_M]
            o_group = (i_block * 4 + i_plane) * N + o_row
            if high_ptr is not None:
                b_q = codes_of_6_bits(b_w, b_h, x_ptr, i_plane, COMPILED) - (ZERO + 32.0)  # [BLOCK_N, PLANE_K]
            else:
                b_q = codes(b_w, x_ptr, 4, i_plane, COMPILED) - ZERO
            b_scale = b_d * tl.load(scales_ptr + o_group).to(tl.float32)  # [BLOCK_N]
            b_acc += tl.dot(b_q.to(dtype), b_x) * b_scale[:, None]
            if minima_ptr is not None:
                b_minimum = tl.load(minima_ptr + o_group).to(dtype)  # [BLOCK_N]
                b_minima = tl.dot(tl.broadcast_to(b_minimum[:, None], (BLOCK_N, PLANE_K)), b_x, b_minima)
        if minima_ptr is not None:
            b_acc -= b_minima * tl.load(dmin_ptr + o_super).to(tl.float32)[:, None]
        o_words += step

    store_or_split(
        b_acc, bias_ptr, y_ptr, partial_ptr, arrived_ptr, o_n, o_m, N, M, stride_ym, i_tile, i_split,
        NUM_SPLITS,
    )  # fmt: skip


TUNED = Tuned("gguf_gemm", k_quant_gemm_kernel, row_of, launches)
