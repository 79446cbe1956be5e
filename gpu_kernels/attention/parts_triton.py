"""Common code of the attention kernels: the online softmax, the combination of parts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.launch import Launch

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

# The interpreter and the compiler have no GPU to ask: an H200 is meant.
MULTIPROCESSORS = 132


def multiprocessors(tensor: Tensor) -> int:
    if not tensor.is_cuda:
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def empty_parts(out: Tensor, lse: Tensor, num_splits: int) -> tuple[Tensor, Tensor]:
    """(out [..., S, D], lse [..., S]) float32 of S parts, to be written; for one part the results themselves."""
    if num_splits == 1:
        return out, lse
    parts = out.new_empty(*lse.shape, num_splits, out.shape[-1], dtype=torch.float32)  # [..., S, D]
    return parts, lse.new_empty(*lse.shape, num_splits)


def combine_launch(partial: Tensor, partial_lse: Tensor, out: Tensor, lse: Tensor) -> Launch:
    """One program a row: partial [..., S, D] and partial_lse [..., S] float32 into out [..., D] and lse [...]."""
    num_splits, head_size = partial.shape[-2:]
    arguments = {
        "partial_ptr": partial,
        "partial_lse_ptr": partial_lse,
        "out_ptr": out,
        "lse_ptr": lse,
        "num_splits": num_splits,
        "head_size": head_size,
        "BLOCK_D": triton.next_power_of_2(head_size),
    }
    # 512 numbers over 4 warps are 4 per thread: 16-byte loads; three parts are under way while one is added.
    return Launch(combine_kernel, (lse.numel(),), arguments, num_warps=4, num_stages=4)


@triton.jit
def softmax_step(b_s, b_max, b_sum):
    """(weights [R, N], the factor [R] of the sums so far, the new maximum [R], the new sum [R]).

    b_s holds scores in units of log 2; -inf where a row may not look. A row that has seen nothing keeps maximum -inf,
    and its weights are 0, not exp2(-inf + inf). NaN and +inf come out as NaN.
    """
    b_new = tl.maximum(b_max, tl.max(b_s, axis=1))
    b_base = tl.where(b_new == -float("inf"), 0.0, b_new)
    b_factor = tl.exp2(b_max - b_base)
    b_p = tl.exp2(b_s - b_base[:, None])
    return b_p, b_factor, b_new, b_sum * b_factor + tl.sum(b_p, axis=1)


@triton.jit
def finish(b_max, b_sum):
    """(1 / sum [R], lse [R] in natural units): 0 and -inf for a row that has seen nothing."""
    is_empty = b_sum == 0.0  # the largest weight of any other row is 1; the maximum may have dropped NaN
    b_inverse = 1.0 / tl.where(is_empty, 1.0, b_sum)
    b_lse = tl.where(is_empty, -float("inf"), (b_max + tl.log2(b_sum)) * LN_2)
    return tl.where(is_empty, 0.0, b_inverse), b_lse


@triton.jit
def combine_kernel(
    # pointers
    partial_ptr,
    partial_lse_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_splits,
    head_size,
    # tile shape
    BLOCK_D: tl.constexpr,
):
    """out = sum_s exp(lse_s - lse) partial_s, lse = log(sum_s exp(lse_s)); one program a row, all tensors dense.

    partial [rows, num_splits, head_size] float32, partial_lse [rows, num_splits], out [rows, head_size], lse [rows]
    """
    i_row = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK_D)
    m_d = o_d < head_size
    largest = -float("inf")
    total = 0.0
    b_acc = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for i_s in range(0, num_splits):
        lse = tl.load(partial_lse_ptr + i_row * num_splits + i_s)
        b_part = tl.load(partial_ptr + (i_row * num_splits + i_s) * head_size + o_d, mask=m_d, other=0.0)  # [BLOCK_D]
        # A maximum may drop NaN: the exponential of lse - base does not.
        new = tl.maximum(largest, lse)
        base = tl.where(new == -float("inf"), 0.0, new)
        factor = tl.exp2((largest - base) * LOG2_E)
        weight = tl.exp2((lse - base) * LOG2_E)
        total = total * factor + weight
        b_acc = b_acc * factor + b_part * weight
        largest = new
    is_empty = total == 0.0
    b_out = tl.where(is_empty, 0.0, b_acc / tl.where(is_empty, 1.0, total))
    lse = tl.where(is_empty, -float("inf"), largest + tl.log2(total) * LN_2)
    tl.store(lse_ptr + i_row, lse)
    tl.store(out_ptr + i_row * head_size + o_d, b_out.to(out_ptr.dtype.element_ty), mask=m_d)
