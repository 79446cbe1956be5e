"""Paged decode in Triton: flash_triton.py's kernel with a sequence's tokens split into parts, then mass if wanted.

Tile shapes of paged decode, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_r, D] queries + num_stages buffers of [2, block_n, D] keys and values, 2 bytes per number or
                  1 per code: at 64 tokens of 128 channels 32 or 16 KB per tile
    registers     = block_r * D float32 of accumulators

Latency times bandwidth of an H200 is about 23 KB per multiprocessor.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

import torch
import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config, Rows, find
from gpu_kernels.attention.flash_launches import Sequences, Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.key_mass_triton import mass_after, stores_scores
from gpu_kernels.attention.paged_decode import Operands
from gpu_kernels.attention.parts_triton import multiprocessors
from gpu_kernels.attention.splits import num_kv_splits
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned

# Heads past 128 channels double everything: half the tokens.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(16, [Config(16, 64, 4, 2, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "16 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
    (80, "8 bit"): [(16, [Config(16, 64, 4, 3, 2)]), (None, [Config(64, 32, 4, 3, 2)])],
    (80, "8 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
    (90, "16 bit"): [
        (16, [Config(16, 64, 4, 4, 2), Config(16, 64, 4, 2, 3), Config(16, 64, 4, 3, 2)]),
        (None, [Config(64, 64, 4, 4, 1), Config(64, 64, 4, 3, 2)]),
    ],
    (90, "16 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 64, 8, 3, 1)])],
    (90, "8 bit"): [
        (16, [Config(16, 64, 4, 3, 2), Config(16, 64, 4, 4, 2), Config(16, 32, 4, 4, 3)]),
        (None, [Config(64, 32, 4, 3, 2), Config(64, 64, 4, 3, 2)]),
    ],
    (90, "8 bit, wide"): [(16, [Config(16, 32, 4, 3, 2)]), (None, [Config(64, 32, 8, 3, 1)])],
}
# int8 takes more instructions per code.
CONFIGS |= {(arch, form.replace("8 bit", "int8")): rows for (arch, form), rows in CONFIGS.items() if "8 bit" in form}
CONFIGS[90, "int8"] = [
    (16, [Config(16, 64, 4, 4, 2), Config(16, 64, 4, 3, 2)]),
    (None, [Config(64, 32, 4, 3, 2), Config(64, 64, 4, 3, 2)]),
]
# Not tuned for its tensor memory: Hopper's shapes, which fit.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}


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


def row(arch: int, cache_dtype: torch.dtype, head_size: int, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads of a group.

    raises  NotImplementedError if the architecture has no rows
    """
    form = "int8" if cache_dtype == torch.int8 else f"{8 * cache_dtype.itemsize} bit"
    form += ", wide" if head_size > 128 else ""
    return find("paged_decode", CONFIGS, arch, form, num_rows)
