"""MLA decode in Triton: the launches of mla_kernel_triton.py and mla_codes_triton.py; the maths is in mla_decode.py.

Tile shapes of MLA decode, as data: by architecture, form of the cache and rows (queries times heads).

    shared bytes  = [block_r, 576] queries + buffers of [block_n, 576] tokens, 2 bytes per number (and, in FP8, the
                  codes)
    accumulators  = block_r * 512 float32 over num_warps * 32 threads: 64 per thread at 16 rows and 4 warps, 128 at 64
                  rows and 8 warps, the most that 255 registers can hold with the scores

Latency times bandwidth of an H200 is about 0.7 us * 4.3 TB/s = 3 MB, or 23 KB per multiprocessor; a tile of 32 tokens
is 36 KB.

Few heads read memory and compute little. Every warp reads all of the queries for its tokens, so fewer warps with more
tokens each read less from shared memory: measured on an H200, 64 tokens over 4 warps reach its bandwidth, and over 8
warps 84 % of it. In FP8 the kernel fetches one tile ahead itself, into registers, and num_stages is 1.

128 heads compute: 64 rows, the least that a warpgroup's product takes, and one program per multiprocessor. There the
compiler keeps some addresses in local memory (200 bytes per thread), which the loop reads and never writes.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

import torch
import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config, Rows, find
from gpu_kernels.attention.mla_codes_triton import mla_decode_codes_kernel
from gpu_kernels.attention.mla_decode import LATENT_SIZE, ROPE_SIZE, Operands
from gpu_kernels.attention.mla_kernel_triton import mla_decode_kernel
from gpu_kernels.attention.parts_triton import LOG2_E, combine_launch, empty_parts, multiprocessors
from gpu_kernels.attention.splits import num_kv_splits
from gpu_kernels.fp8_triton import readable
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned

CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [
        (16, [Config(16, 32, 4, 2, 2), Config(16, 32, 8, 3, 1)]),
        (None, [Config(32, 32, 8, 3, 1), Config(64, 32, 8, 2, 1)]),
    ],
    (80, "8 bit"): [
        (16, [Config(16, 32, 4, 1, 2)]),
        (None, [Config(32, 32, 8, 1, 1)]),
    ],
    (90, "16 bit"): [
        (16, [Config(16, 64, 4, 3, 1), Config(16, 32, 4, 3, 2), Config(16, 64, 8, 3, 1)]),
        (32, [Config(32, 64, 8, 3, 1), Config(32, 32, 8, 4, 1)]),
        (None, [Config(64, 64, 8, 2, 1), Config(64, 32, 8, 3, 1)]),
    ],
    (90, "8 bit"): [
        (16, [Config(16, 32, 4, 1, 2), Config(16, 32, 8, 1, 1)]),
        (None, [Config(32, 32, 8, 1, 1)]),
    ],
}
# Not tuned for its tensor memory: Hopper's shapes, except 64 rows by 64 tokens, which do not fit.
CONFIGS |= {(100, form): CONFIGS[90, form] for form in ("16 bit", "8 bit")}
CONFIGS[100, "16 bit"] = [*CONFIGS[90, "16 bit"][:2], (None, [Config(64, 32, 8, 2, 1)])]


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


def row(arch: int, is_fp8: bool, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads.

    raises  NotImplementedError if the architecture has no rows
    """
    return find("mla_decode", CONFIGS, arch, "8 bit" if is_fp8 else "16 bit", num_rows)
