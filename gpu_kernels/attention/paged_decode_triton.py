"""Paged decode in Triton: flash_triton.py's kernel with a sequence's tokens split into parts."""

import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_decode_configs import row
from gpu_kernels.attention.parts_triton import multiprocessors
from gpu_kernels.attention.splits import num_kv_splits as choose_splits
from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture


def paged_decode_triton(
    query: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    max_length: int,
    num_kv_splits: int | None,
    out: Tensor,
    lse: Tensor,
    config: Config | None = None,
) -> None:
    """Writes out [B, Q, H, D] and lse [B, Q, H] (operands as checked in paged_decode).

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("paged_decode", query, flash_kernel)
    operands = (query, cache, softmax_scale, window, sinks, max_length, num_kv_splits, out, lse)
    for launch in launches(*operands, arch=arch, config=config):
        launch.run(query.device)


def launches(
    query: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    max_length: int,
    num_kv_splits: int | None,
    out: Tensor,
    lse: Tensor,
    *,
    arch: int,
    config: Config | None = None,
) -> list[Launch]:
    batch, num_queries, _, head_size = query.shape
    work = Work(
        query.flatten(0, 1),
        cache.keys,
        cache.values,
        out.flatten(0, 1),
        lse.flatten(0, 1),
        batch,
        num_queries,
        softmax_scale,
        cache=cache,
        sinks=sinks,
        window=window,
    )
    if config is None:
        config = chosen("paged_decode", *row(arch, cache.is_codes, head_size, work.most_rows), query.device)
    num_programs = batch * work.num_kv_heads * triton.cdiv(work.most_rows, config.block_r)
    seen = max_length if window is None else min(max_length, window + num_queries - 1)
    slots = multiprocessors(query) * config.programs
    splits = num_kv_splits or choose_splits(num_programs, triton.cdiv(seen, config.block_n), slots)
    return flash_launches(work, config, splits, arch)
