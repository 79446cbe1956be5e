"""MLA decode in Triton over a cache of 16-bit numbers; the maths is in mla_decode.py.

Rows     the queries of a sequence times its heads: all read the same tokens, so one program takes as many as it can.
Split    one program a block of rows, a part of the tokens, a sequence; blocks of rows run next to each other, so that
         what the first fetched the others find in the L2.
Program  walks its tokens in steps of BLOCK_N: a tile of latents is fetched once, for the scores (transposed) and for
         the values; the softmax is online, in units of log 2.
Parts    with more than one, each writes float32, normalized, with its lse; `combine_kernel` joins them.
Edges    tokens past the length are not read, and neither are their pages' numbers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.mla_decode import LATENT_SIZE, ROPE_SIZE
from gpu_kernels.attention.mla_decode_configs import row
from gpu_kernels.attention.mla_decode_fp8_triton import mla_decode_fp8_kernel
from gpu_kernels.attention.mla_rows_triton import part_of, query_rows, store_part
from gpu_kernels.attention.parts_triton import LOG2_E, combine_launch, finish, multiprocessors, softmax_step
from gpu_kernels.attention.splits import num_kv_splits as choose_splits
from gpu_kernels.chosen import chosen
from gpu_kernels.fp8_triton import readable
from gpu_kernels.launch import Launch, architecture


def mla_decode_triton(
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    softmax_scale: float,
    max_length: int,
    num_kv_splits: int | None,
    out: Tensor,
    lse: Tensor,
    config: Config | None = None,
) -> None:
    """Writes out [B, Q, H, 512] and lse [B, Q, H] (operands as checked in mla_decode).

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("mla_decode", query, mla_decode_kernel)
    operands = (query, cache, block_table, lengths, softmax_scale, max_length, num_kv_splits, out, lse)
    for launch in launches(*operands, arch=arch, config=config):
        launch.run(query.device)


def launches(
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    softmax_scale: float,
    max_length: int,
    num_kv_splits: int | None,
    out: Tensor,
    lse: Tensor,
    *,
    arch: int,
    config: Config | None = None,
) -> list[Launch]:
    """One program a (block of rows, part, sequence); then, if there are parts to join, one a row."""
    batch, num_queries, num_heads, _ = query.shape
    is_fp8 = cache.dtype == torch.uint8
    if config is None:
        config = chosen("mla_decode", *row(arch, is_fp8, num_queries * num_heads), query.device)
    row_blocks = triton.cdiv(num_queries * num_heads, config.block_r)
    splits = num_kv_splits or choose_splits(
        batch * row_blocks, triton.cdiv(max_length, config.block_n), multiprocessors(query) * config.programs
    )
    part, part_lse = out, lse
    if splits > 1:
        part = out.new_empty(*lse.shape, splits, LATENT_SIZE, dtype=torch.float32)  # [B, Q, H, S, 512]
        part_lse = lse.new_empty(*lse.shape, splits)  # [B, Q, H, S]
    arguments = {
        "query_ptr": query,
        "block_table_ptr": block_table,
        "lengths_ptr": lengths,
        "out_ptr": part,
        "lse_ptr": part_lse,
        "num_queries": num_queries,
        "num_heads": num_heads,
        "num_splits": splits,
        "softmax_scale": softmax_scale * LOG2_E.value,
        "stride_qb": query.stride(0),
        "stride_qq": query.stride(1),
        "stride_qh": query.stride(2),
        "stride_tb": block_table.stride(0),
        "stride_tp": block_table.stride(1),
        "stride_l": lengths.stride(0),
        "PAGE_SIZE": cache.shape[1],
        "BLOCK_R": config.block_r,
        "BLOCK_N": config.block_n,
        "LATENT": LATENT_SIZE,
        "ROPE": ROPE_SIZE,
    }
    kernel = mla_decode_fp8_kernel if is_fp8 else mla_decode_kernel
    arguments |= _fp8_pointers(cache, arch) if is_fp8 else _pointers(cache)
    grid = (row_blocks, splits, batch)
    first = Launch(kernel, grid, arguments, config.num_warps, config.num_stages)
    return [first] if splits == 1 else [first, combine_launch(part, part_lse, out, lse)]


def _pointers(cache: Tensor) -> dict:
    return {"cache_ptr": cache, "stride_cp": cache.stride(0), "stride_ct": cache.stride(1)}


def _fp8_pointers(cache: Tensor, arch: int) -> dict:
    """The same bytes as codes, as scales and as rotated channels."""
    units = [stride // 16 for stride in cache.stride()[:2]]  # a byte each; checked in mla_decode to be multiples
    return {
        "codes_ptr": readable(cache.view(torch.float8_e4m3fn), arch),
        "scales_ptr": cache.view(torch.float32),
        "ropes_ptr": cache.view(torch.bfloat16),
        "stride_cp": units[0],
        "stride_ct": units[1],
    }


@triton.jit
def mla_decode_kernel(
    # pointers
    query_ptr,
    cache_ptr,
    block_table_ptr,
    lengths_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_queries,
    num_heads,
    num_splits,
    softmax_scale,  # times log2(e)
    # strides, in elements; out and lse are dense
    stride_qb,
    stride_qq,
    stride_qh,
    stride_cp,
    stride_ct,
    stride_tb,
    stride_tp,
    stride_l,
    # tile shape
    PAGE_SIZE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
):
    i_block, i_split, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(lengths_ptr + i_b * stride_l)
    start, end = part_of(length, i_split, num_splits, BLOCK_N)
    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    o_end = tl.minimum(length - (num_queries - 1 - o_row // num_heads), end)  # [BLOCK_R] what a row sees of this part
    b_q, b_q_rope = query_rows(
        query_ptr, i_b, o_row, num_queries, num_heads, stride_qb, stride_qq, stride_qh, LATENT, ROPE
    )

    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc = tl.zeros((BLOCK_R, LATENT), dtype=tl.float32)
    p_table = block_table_ptr + i_b * stride_tb
    o_c = tl.arange(0, LATENT)
    o_r = LATENT + tl.arange(0, ROPE)
    for i_n in range(start, end, BLOCK_N):
        o_n = i_n + tl.arange(0, BLOCK_N)
        m_n = o_n < end
        b_page = tl.load(p_table + o_n // PAGE_SIZE * stride_tp, mask=m_n, other=0).to(tl.int64)  # [BLOCK_N]
        p_token = cache_ptr + b_page * stride_cp + o_n % PAGE_SIZE * stride_ct
        b_c = tl.load(p_token[:, None] + o_c[None, :], mask=m_n[:, None], other=0.0)  # [BLOCK_N, LATENT]
        b_rope = tl.load(p_token[:, None] + o_r[None, :], mask=m_n[:, None], other=0.0)  # [BLOCK_N, ROPE]
        b_s = tl.dot(b_q, tl.trans(b_c))  # [BLOCK_R, BLOCK_N]
        b_s = tl.dot(b_q_rope, tl.trans(b_rope), b_s) * softmax_scale
        b_s = tl.where(o_n[None, :] < o_end[:, None], b_s, -float("inf"))
        b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
        b_acc = tl.dot(b_p.to(b_c.dtype), b_c, b_acc * b_factor[:, None])

    b_inverse, b_lse = finish(b_max, b_sum)
    store_part(
        out_ptr, lse_ptr, b_acc, b_inverse, b_lse, i_b, i_split, o_row, num_queries, num_heads, num_splits, LATENT
    )
