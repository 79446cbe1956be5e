"""Paged decode in Triton: flash_triton.py's kernel with a sequence's tokens split into parts."""

import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Sequences, Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.paged_decode import Operands
from gpu_kernels.attention.paged_decode_configs import row
from gpu_kernels.attention.parts_triton import multiprocessors
from gpu_kernels.attention.splits import num_kv_splits
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def paged_decode_triton(operands: Operands, out: Tensor, lse: Tensor, config: Config | None = None) -> None:
    """Writes out [B, Q, H, D] and lse [B, Q, H]."""
    TUNED.run(operands, out, lse, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.cache.is_codes, operands.query.shape[-1], operands.num_rows)


def launches(operands: Operands, out: Tensor, lse: Tensor, config: Config, arch: int) -> list[Launch]:
    query, cache = operands.query, operands.cache
    work = Work(
        query=query.flatten(0, 1),
        keys=cache.keys,
        values=cache.values,
        out=out.flatten(0, 1),
        lse=lse.flatten(0, 1),
        sequences=Sequences(query.shape[0], query.shape[1]),
        softmax_scale=operands.scale,
        paged=operands,
    )
    num_programs = len(query) * work.num_kv_heads * triton.cdiv(work.most_rows, config.block_r)
    slots = multiprocessors(query) * config.programs
    tiles = triton.cdiv(operands.most_seen, config.block_n)
    splits = operands.num_kv_splits or num_kv_splits(num_programs, tiles, slots)
    return flash_launches(work, config, splits, arch)


TUNED = Tuned("paged_decode", flash_kernel, row_of, launches)
