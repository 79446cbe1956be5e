"""What the launches of W8A8, FP8 and LLM.int8() have in common: codes times codes, a scale for rows of each."""

import torch
import triton
from torch import Tensor

from gpu_kernels.products.split_k import Workspace, num_splits, workspace_for
from gpu_kernels.products.w8a8_gemm_configs import Config


def code_launch(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
    config: Config,
    arch: int,
) -> tuple[tuple[int, int], dict]:
    """(grid: a program a share of a tile, the arguments by their names in the kernels); shapes as in w8a8_gemm."""
    (M, K), N = x_q.shape, weight_q.shape[0]
    num_tiles = triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n)
    num_steps = triton.cdiv(K, config.block_k)
    splits = num_splits(arch, config.programs_per_sm, num_tiles, num_steps)
    partial, arrived = workspace_for(workspace, splits, num_tiles, config.block_m * config.block_n, x_q)
    if partial is not None and x_q.dtype == torch.int8:
        partial = partial.view(torch.int32)  # whole numbers, as the sums are: in any order they add to the same
    arguments = {
        "x_q_ptr": x_q,
        "x_scale_ptr": x_scale,
        "weight_q_ptr": weight_q,
        "weight_scale_ptr": weight_scale,
        "bias_ptr": bias,
        "y_ptr": y,
        "partial_ptr": partial,
        "arrived_ptr": arrived,
        "M": M,
        "N": N,
        "K": K,
        "steps_per_split": triton.cdiv(num_steps, splits),
        "stride_qm": x_q.stride(0),
        "stride_qk": x_q.stride(1),
        "stride_qs": x_scale.stride(0),
        "stride_wn": weight_q.stride(0),
        "stride_wk": weight_q.stride(1),
        "stride_ws": weight_scale.stride(0),
        "stride_b": 0 if bias is None else bias.stride(0),
        "stride_ym": y.stride(0),
        "stride_yn": y.stride(1),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
        "NUM_SPLITS": splits,
        "EVEN_K": K % config.block_k == 0,
    }
    return (num_tiles, splits), arguments
