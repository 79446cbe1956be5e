"""Compaction in Triton; the maths is in compact.py.

Split    one program a (keys or values, key-value head, sequence), which moves its slots in rising order.
Program  reads BLOCK_N rows, waits until all its threads have, and writes them. Sources of later blocks are never
         before their targets, so that no block overwrites rows that another reads.
Edges    slots that stay are neither read nor written.
"""

import triton
import triton.language as tl

from gpu_kernels.fused.compact import Operands
from gpu_kernels.launch import Launch, architecture, run_all

BLOCK_N = 64  # rows of 128 numbers in 16 bits: 16 KB under way per program, 128 bytes per thread
NUM_WARPS = 4


def compact_triton(operands: Operands) -> None:
    """Writes the caches.

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("compact", operands.keep, compact_kernel)
    run_all(launches(operands, arch), operands.keep.device)


def launches(operands: Operands, arch: int) -> list[Launch]:
    keys, values = operands.integers()
    batch, num_heads, count = operands.keep.shape
    arguments = {
        "key_ptr": keys,
        "value_ptr": values,
        "block_table_ptr": operands.block_table,
        "keep_ptr": operands.keep,
        "count": count,
        "head_size": keys.shape[3],
        "page_size": keys.shape[1],
        "stride_kp": keys.stride(0),
        "stride_kt": keys.stride(1),
        "stride_kh": keys.stride(2),
        "stride_vp": values.stride(0),
        "stride_vt": values.stride(1),
        "stride_vh": values.stride(2),
        "stride_tb": operands.block_table.stride(0),
        "stride_tp": operands.block_table.stride(1),
        "BLOCK_N": BLOCK_N,
        "BLOCK_D": triton.next_power_of_2(keys.shape[3]),
    }
    return [Launch(compact_kernel, (2, num_heads, batch), arguments, NUM_WARPS)]


@triton.jit
def _rows(p_cache, p_table, o_slot, m_slot, page_size, stride_p, stride_t, stride_tp):
    """Pointers [BLOCK_N] to the rows of slots."""
    b_page = tl.load(p_table + o_slot // page_size * stride_tp, mask=m_slot, other=0).to(tl.int64)
    return p_cache + b_page * stride_p + o_slot % page_size * stride_t


@triton.jit
def _move(
    p_cache, p_table, p_keep, count, head_size, page_size, stride_p, stride_t, stride_tp,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, BLOCK_D)
    for i_n in range(0, count, BLOCK_N):
        o_to = i_n + tl.arange(0, BLOCK_N)
        o_from = tl.load(p_keep + o_to, mask=o_to < count, other=-1)
        m_row = (o_from >= 0) & (o_from != o_to)
        p_from = _rows(p_cache, p_table, o_from, m_row, page_size, stride_p, stride_t, stride_tp)
        p_to = _rows(p_cache, p_table, o_to, m_row, page_size, stride_p, stride_t, stride_tp)
        m = m_row[:, None] & (o_d < head_size)[None, :]
        b_rows = tl.load(p_from[:, None] + o_d[None, :], mask=m, other=0)  # [BLOCK_N, BLOCK_D]
        tl.debug_barrier()
        tl.store(p_to[:, None] + o_d[None, :], b_rows, mask=m)


@triton.jit
def compact_kernel(
    # pointers
    key_ptr,
    value_ptr,
    block_table_ptr,
    keep_ptr,
    # sizes
    count,
    head_size,
    page_size,
    # strides, in elements; keep and rows are dense
    stride_kp,
    stride_kt,
    stride_kh,
    stride_vp,
    stride_vt,
    stride_vh,
    stride_tb,
    stride_tp,
    # tile shape
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i_g, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    p_table = block_table_ptr + i_b * stride_tb
    p_keep = keep_ptr + (i_b * tl.num_programs(1) + i_g) * count
    if tl.program_id(0) == 0:
        p_k = key_ptr + i_g * stride_kh
        _move(p_k, p_table, p_keep, count, head_size, page_size, stride_kp, stride_kt, stride_tp, BLOCK_N, BLOCK_D)
    else:
        p_v = value_ptr + i_g * stride_vh
        _move(p_v, p_table, p_keep, count, head_size, page_size, stride_vp, stride_vt, stride_tp, BLOCK_N, BLOCK_D)
