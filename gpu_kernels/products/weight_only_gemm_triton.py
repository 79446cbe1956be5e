"""The products of 4- and 8-bit weights in Triton; the maths is in weight_only_gemm.py, the layout in words_layout.py.

Split    one program a [BLOCK_N, BLOCK_M] tile of y transposed, or one of NUM_SPLITS shares of its input features.
Program  walks blocks of features, one load of 32 words a row and block; a plane of 32 features at a time becomes
         floats in registers and meets its activations in the tensor cores. Each group's sum is scaled in float32.
Edges    rows past N read the last real row and are never stored. Tokens past M and features past K read as 0, which
         takes no memory traffic; the codes of features past K are there.
Order    in act-order the activations are gathered, up to 16 tokens; more are put in order by one launch before.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products.split_k import Workspace, num_splits, workspace_for
from gpu_kernels.products.tiles_triton import store_or_split, tile_of
from gpu_kernels.products.weight_only_configs import Config, configuration
from gpu_kernels.products.words_layout import PLANE_K, WordsWeight, block_k
from gpu_kernels.products.words_product_triton import words_product

MAX_GATHERED_TOKENS = 16  # a gather takes one instruction an element, which few tokens do not notice


def weight_only_gemm_triton(
    x: Tensor,
    weight: WordsWeight,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None = None,
    config: Config | None = None,
) -> None:
    """Writes y [M, N] (shapes and dtypes as checked in weight_only_gemm), with the tile shape the table has for it.

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    op = f"w{weight.bits}a16_gemm"
    arch = architecture(op, x, weight_only_gemm_kernel)
    config = config or configuration(op, arch, x)
    order = weight.order
    if order is not None and x.shape[0] > MAX_GATHERED_TOKENS:
        x, order = x.index_select(1, order), None
    weight_only_gemm_launch(x, weight, order, bias, y, workspace, config, arch).run(y.device)


def weight_only_gemm_launch(
    x: Tensor,
    weight: WordsWeight,
    order: Tensor | None,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
    config: Config,
    arch: int,
) -> Launch:
    """One program a share of a tile.

    order  the place of x's features that the kernel still has to gather by
    """
    (M, K), N = x.shape, weight.num_rows
    num_tiles = triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n)
    num_blocks = triton.cdiv(K, block_k(weight.bits))
    splits = num_splits(arch, config.programs_per_sm, num_tiles, num_blocks)
    partial, arrived = workspace_for(workspace, splits, num_tiles, config.block_n * config.block_m, x)
    arguments = {
        "x_ptr": x,
        "codes_ptr": weight.codes,
        "scale_ptr": weight.scale,
        "zero_point_ptr": weight.zero_point,
        "order_ptr": order,
        "bias_ptr": bias,
        "y_ptr": y,
        "partial_ptr": partial,
        "arrived_ptr": arrived,
        "M": M,
        "N": N,
        "K": K,
        "num_groups": weight.scale.shape[0],
        "blocks_per_split": triton.cdiv(num_blocks, splits),
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_ym": y.stride(0),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "GROUP_N": config.group_n,
        "NUM_SPLITS": splits,
        "GROUP_PLANES": 0 if weight.group_size is None else weight.group_size // PLANE_K,
        "BITS": weight.bits,
        "EVEN_K": K % block_k(weight.bits) == 0,
        "COMPILED": isinstance(weight_only_gemm_kernel, triton.JITFunction),
    }
    grid = (num_tiles, splits)
    return Launch(weight_only_gemm_kernel, grid, arguments, config.num_warps, config.num_stages)


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
    GROUP_PLANES: tl.constexpr,  # planes of 32 features in a group; 0: one group a channel
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
