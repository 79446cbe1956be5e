"""MLA decode in Triton: the launches of mla_kernel_triton.py and mla_codes_triton.py; the maths is in mla_decode.py."""

import torch
import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.mla_codes_triton import mla_decode_codes_kernel
from gpu_kernels.attention.mla_decode import LATENT_SIZE, ROPE_SIZE, Operands
from gpu_kernels.attention.mla_decode_configs import row
from gpu_kernels.attention.mla_kernel_triton import mla_decode_kernel
from gpu_kernels.attention.parts_triton import LOG2_E, combine_launch, empty_parts, multiprocessors
from gpu_kernels.attention.splits import num_kv_splits
from gpu_kernels.fp8_triton import readable
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def mla_decode_triton(operands: Operands, out: Tensor, lse: Tensor, config: Config | None = None) -> None:
    """Writes out [B, Q, H, 512] and lse [B, Q, H]."""
    TUNED.run(operands, out, lse, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.is_fp8, operands.num_rows)


def launches(operands: Operands, out: Tensor, lse: Tensor, config: Config, arch: int) -> list[Launch]:
    """One program per (block of rows, part, sequence); then, if there are parts to join, one per row."""
    query, cache, block_table, seq_lens = operands.query, operands.cache, operands.block_table, operands.seq_lens
    batch, num_queries, num_heads, _ = query.shape
    row_blocks = triton.cdiv(operands.num_rows, config.block_r)
    splits = operands.num_kv_splits or num_kv_splits(
        batch * row_blocks, triton.cdiv(operands.longest, config.block_n), multiprocessors(query) * config.programs
    )
    part, part_lse = empty_parts(out, lse, splits)
    arguments = {
        "query_ptr": query,
        "block_table_ptr": block_table,
        "seq_lens_ptr": seq_lens,
        "out_ptr": part,
        "lse_ptr": part_lse,
        "num_queries": num_queries,
        "num_heads": num_heads,
        "num_splits": splits,
        "softmax_scale": operands.softmax_scale * LOG2_E.value,
        "stride_qb": query.stride(0),
        "stride_qq": query.stride(1),
        "stride_qh": query.stride(2),
        "stride_tb": block_table.stride(0),
        "stride_tp": block_table.stride(1),
        "stride_l": seq_lens.stride(0),
        "PAGE_SIZE": cache.shape[1],
        "BLOCK_R": config.block_r,
        "BLOCK_N": config.block_n,
        "LATENT": LATENT_SIZE,
        "ROPE": ROPE_SIZE,
    }
    arguments |= _fp8_pointers(cache, arch) if operands.is_fp8 else _pointers(cache)
    grid = (row_blocks, splits, batch)
    kernel = mla_decode_codes_kernel if operands.is_fp8 else mla_decode_kernel
    first = Launch(kernel, grid, arguments, config.num_warps, config.num_stages)
    return [first] if splits == 1 else [first, combine_launch(part, part_lse, out, lse)]


TUNED = Tuned("mla_decode", mla_decode_kernel, row_of, launches)


def _pointers(cache: Tensor) -> dict[str, Tensor | int]:
    return {"cache_ptr": cache, "stride_cp": cache.stride(0), "stride_ct": cache.stride(1)}


def _fp8_pointers(cache: Tensor, arch: int) -> dict[str, Tensor | int]:
    """The same bytes as codes, as scales and as rotated channels."""
    units = [stride // 16 for stride in cache.stride()[:2]]  # a byte each; checked in mla_decode to be multiples
    return {
        "cache_ptr": readable(cache.view(torch.float8_e4m3fn), arch),
        "scales_ptr": cache.view(torch.float32),
        "ropes_ptr": cache.view(torch.bfloat16),
        "stride_cp": units[0],
        "stride_ct": units[1],
    }
