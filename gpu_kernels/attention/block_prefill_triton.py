"""Attention over listed blocks of keys in Triton; the maths is in block_prefill.py.

Split    one program per (block of BLOCK_R queries, head). The last blocks may see the most tokens and go first.
Program  walks the key blocks of its list in steps of BLOCK_N tokens, with an online softmax in units of log 2.
Edges    tokens past the prompt are not read; blocks after the queries are read, if they are listed, and not seen.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.attention.block_prefill import KEY_BLOCK, QUERY_BLOCK, Operands
from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_triton import load_tile
from gpu_kernels.attention.parts_triton import LOG2_E, finish, softmax_step
from gpu_kernels.attention.prefill_configs import row
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def block_prefill_triton(operands: Operands, out: Tensor, lse: Tensor, config: Config | None = None) -> None:
    """Writes out [T, H, D] and lse [T, H]."""
    TUNED.run(operands, out, lse, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row("block_prefill", arch, "block lists")


def launches(operands: Operands, out: Tensor, lse: Tensor, config: Config, arch: int) -> list[Launch]:
    query, keys, values = operands.query, operands.keys, operands.values
    num_tokens, num_heads, head_size = query.shape
    arguments = {
        "query_ptr": query,
        "key_ptr": keys,
        "value_ptr": values,
        "offsets_ptr": operands.offsets,
        "indices_ptr": operands.indices,
        "out_ptr": out,
        "lse_ptr": lse,
        "num_tokens": num_tokens,
        "num_heads": num_heads,
        "softmax_scale": operands.softmax_scale * LOG2_E.value,
        "stride_qt": query.stride(0),
        "stride_qh": query.stride(1),
        "stride_kt": keys.stride(0),
        "stride_kh": keys.stride(1),
        "stride_vt": values.stride(0),
        "stride_vh": values.stride(1),
        "stride_list": operands.offsets.stride(0) if len(operands.offsets) > 1 else 0,
        "GROUP": operands.group,
        "HEAD_SIZE": head_size,
        "QUERY_BLOCK": QUERY_BLOCK,
        "KEY_BLOCK": KEY_BLOCK,
        "BLOCK_R": config.block_r,
        "BLOCK_N": config.block_n,
        "BLOCK_D": triton.next_power_of_2(head_size),
    }
    grid = (triton.cdiv(num_tokens, config.block_r), num_heads)
    return [Launch(block_prefill_kernel, grid, arguments, config.num_warps, config.num_stages)]


@triton.jit
def block_prefill_kernel(
    # pointers
    query_ptr,
    key_ptr,
    value_ptr,
    offsets_ptr,
    indices_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_tokens,
    num_heads,
    softmax_scale,  # times log2(e)
    # strides, in elements; out and lse are dense
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_list,  # 0: all heads share their lists
    # form of the operands
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,  # a multiple of BLOCK_R
    KEY_BLOCK: tl.constexpr,  # a multiple of BLOCK_N
    # tile shape
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i_block = tl.num_programs(0) - 1 - tl.program_id(0)
    i_head = tl.program_id(1).to(tl.int64)
    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    m_row = o_row < num_tokens
    p_list = offsets_ptr + i_head * stride_list + i_block * BLOCK_R // QUERY_BLOCK
    first, last = tl.load(p_list), tl.load(p_list + 1)

    p_q = query_ptr + o_row.to(tl.int64) * stride_qt + i_head * stride_qh
    b_q = load_tile(p_q, m_row, HEAD_SIZE, BLOCK_D)  # [BLOCK_R, BLOCK_D]
    key_ptr += i_head // GROUP * stride_kh
    value_ptr += i_head // GROUP * stride_vh
    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc = tl.zeros((BLOCK_R, BLOCK_D), dtype=tl.float32)
    STEPS: tl.constexpr = KEY_BLOCK // BLOCK_N
    for i_step in range(first * STEPS, last * STEPS):  # one loop, so that loads of the next tile run ahead
        i_list = i_step // STEPS
        i_tile = tl.load(indices_ptr + i_list) * STEPS + i_step - i_list * STEPS
        o_n = i_tile * BLOCK_N + tl.arange(0, BLOCK_N)
        m_n = o_n < num_tokens
        b_k = load_tile(key_ptr + o_n.to(tl.int64) * stride_kt, m_n, HEAD_SIZE, BLOCK_D)  # [BLOCK_N, BLOCK_D]
        b_v = load_tile(value_ptr + o_n.to(tl.int64) * stride_vt, m_n, HEAD_SIZE, BLOCK_D)  # [BLOCK_N, BLOCK_D]
        b_visible = m_n[None, :] & (o_n[None, :] <= o_row[:, None])
        b_s = tl.where(b_visible, tl.dot(b_q, tl.trans(b_k)) * softmax_scale, -float("inf"))  # [BLOCK_R, BLOCK_N]
        b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
        b_acc = tl.dot(b_p.to(b_v.dtype), b_v, b_acc * b_factor[:, None])

    b_inverse, b_lse = finish(b_max, b_sum)
    o_out = o_row.to(tl.int64) * num_heads + i_head  # [BLOCK_R]
    tl.store(lse_ptr + o_out, b_lse, mask=m_row)
    o_d = tl.arange(0, BLOCK_D)
    m_out = m_row[:, None] & (o_d < HEAD_SIZE)[None, :]
    p_out = out_ptr + o_out[:, None] * HEAD_SIZE + o_d[None, :]
    tl.store(p_out, (b_acc * b_inverse[:, None]).to(out_ptr.dtype.element_ty), mask=m_out)


TUNED = Tuned("block_prefill", block_prefill_kernel, row_of, launches)
