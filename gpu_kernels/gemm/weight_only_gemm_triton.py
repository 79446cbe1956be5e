"""The products of 4- and 8-bit weights in Triton; the maths is in weight_only_gemm.py, the layout in words_layout.py.

Split    one program a [BLOCK_N, BLOCK_M] tile of y transposed, or one of NUM_SPLITS shares of its input features.
Program  walks blocks of features, one load of 32 words per row and block; a plane of 32 features at a time becomes
         floats in registers and meets its activations in the tensor cores. Each group's sum is scaled in float32.
Edges    rows past N read the last real row and are never stored. Tokens past M and features past K read as 0, which
         takes no memory traffic; the codes of features past K are there.
Order    in act-order the activations are gathered, up to 16 tokens; more are put in order by one launch before.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.gemm.split_k import share_tiles
from gpu_kernels.gemm.tiles_triton import store_or_split, tile_of
from gpu_kernels.gemm.weight_only_configs import Config, row
from gpu_kernels.gemm.weight_only_gemm import Operands, op_of
from gpu_kernels.gemm.weight_operands import WeightOperands
from gpu_kernels.gemm.words_layout import PLANE_K, WordsWeight, block_k
from gpu_kernels.gemm.words_product_triton import words_product
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned

MAX_GATHERED_TOKENS = 16  # a gather takes one instruction per element, which few tokens do not notice


def weight_only_gemm_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [M, N], with the tile shape that the table has for it."""
    TUNED[op_of(operands.weight)].run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(op_of(operands.weight), arch, len(operands.x))


def launches(operands: WeightOperands, y: Tensor, config: Config, arch: int) -> list[Launch]:
    """One program a share of a tile. The activations of many tokens are put in order before."""
    x, weight = operands.x, operands.weight
    assert isinstance(weight, WordsWeight)  # gguf_gemm_triton comes here with q8_0 alone
    order = weight.order  # the place of x's features that the kernel still has to gather by
    if order is not None and len(x) > MAX_GATHERED_TOKENS:
        x, order = x.index_select(1, order), None
    (M, K), N = x.shape, weight.num_rows
    shares = share_tiles(operands.workspace, config, arch, (M, N), triton.cdiv(K, block_k(weight.bits)), x)
    arguments = {
        "x_ptr": x,
        "codes_ptr": weight.codes,
        "scale_ptr": weight.scale,
        "zero_point_ptr": weight.zero_point,
        "order_ptr": order,
        "bias_ptr": operands.dense_bias(),
        "y_ptr": y,
        "partial_ptr": shares.partial,
        "arrived_ptr": shares.arrived,
        "M": M,
        "N": N,
        "K": K,
        "num_groups": weight.scale.shape[0],
        "blocks_per_split": shares.steps_per_split,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_ym": y.stride(0),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "GROUP_N": config.group_n,
        "NUM_SPLITS": shares.num_splits,
        "GROUP_PLANES": 0 if weight.group_size is None else weight.group_size // PLANE_K,
        "BITS": weight.bits,
        "EVEN_K": K % block_k(weight.bits) == 0,
        "COMPILED": isinstance(weight_only_gemm_kernel, triton.JITFunction),
    }
    return [Launch(weight_only_gemm_kernel, shares.grid, arguments, config.num_warps, config.num_stages)]


@triton.jit
def weight_only_gemm_kernel(
    # pointers
    x_ptr,
    codes_ptr,
    scale_ptr,
    zero_point_ptr,
    order_ptr,
    bias_ptr,
    y_ptr,
    partial_ptr,
    arrived_ptr,
    # sizes
    M,
    N,
    K,
    num_groups,
    blocks_per_split,
    # strides, in elements
    stride_xm,
    stride_xk,
    stride_ym,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_N: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    GROUP_PLANES: tl.constexpr,  # planes of 32 features in a group; 0: one group per channel
    BITS: tl.constexpr,
    EVEN_K: tl.constexpr,
    COMPILED: tl.constexpr,
):
    i_tile, i_split = tl.program_id(0), tl.program_id(1)
    i_n, i_m = tile_of(i_tile, M, N, BLOCK_M, BLOCK_N, GROUP_N)
    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    first = i_split.to(tl.int64) * blocks_per_split
    last = tl.minimum(first + blocks_per_split, tl.cdiv(K, 32 * (16 // BITS)))
    b_acc = words_product(
        x_ptr + o_m[None, :] * stride_xm, codes_ptr, scale_ptr, zero_point_ptr, order_ptr,
        (o_m < M)[None, :], tl.minimum(o_n, N - 1), first, last, N, K, num_groups, stride_xk,
        BLOCK_M, BLOCK_N, GROUP_PLANES, BITS, EVEN_K, COMPILED,
    )  # fmt: skip
    store_or_split(
        b_acc, bias_ptr, y_ptr, partial_ptr, arrived_ptr, o_n, o_m, N, M, stride_ym, i_tile, i_split,
        NUM_SPLITS,
    )  # fmt: skip


TUNED = {op: Tuned(op, weight_only_gemm_kernel, row_of, launches) for op in ("w4a16_gemm", "w8a16_gemm")}
