"""Paged decode in Triton: flash_triton.py's kernel with a sequence's tokens split into parts, then mass if wanted."""

import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Sequences, Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.key_mass_triton import mass_after, stores_scores
from gpu_kernels.attention.paged_decode import Operands
from gpu_kernels.attention.paged_decode_configs import row
from gpu_kernels.attention.parts_triton import multiprocessors
from gpu_kernels.attention.splits import num_kv_splits
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def paged_decode_triton(
    operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None, config: Config | None = None
) -> None:
    """Writes out [B, Q, H, D], lse [B, Q, H] and, if it is wanted, mass [B, Hkv, S]."""
    TUNED.run(operands, out, lse, mass, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.cache.keys.dtype, operands.query.shape[-1], operands.num_rows)


def launches(
    operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None, config: Config, arch: int
) -> list[Launch]:
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
        scores=_empty_scores(operands, mass),
    )
    num_programs = len(query) * work.num_kv_heads * triton.cdiv(work.most_rows, config.block_r)
    slots = multiprocessors(query) * config.programs
    tiles = triton.cdiv(operands.most_seen, config.block_n)
    splits = operands.num_kv_splits or num_kv_splits(num_programs, tiles, slots)
    found = flash_launches(work, config, splits, arch)
    return found if mass is None else [*found, mass_after(work, mass, _observed(operands), arch)]


def _observed(operands: Operands) -> int:
    """Queries of a sequence whose mass is wanted."""
    return min(operands.mass_queries or 0, operands.query.shape[1])


def _empty_scores(operands: Operands, mass: Tensor | None) -> Tensor | None:
    """[B, Hkv, rows, S] float32, to be written; None if the mass is not wanted or comes from the keys."""
    num_rows = _observed(operands) * operands.group
    if mass is None or not stores_scores(num_rows, operands.cache):
        return None
    batch, num_kv_heads, num_slots = mass.shape
    return mass.new_empty(batch, num_kv_heads, num_rows, num_slots)


TUNED = Tuned("paged_decode", flash_kernel, row_of, launches)
