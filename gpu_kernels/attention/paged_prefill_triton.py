"""Paged prefill in Triton: flash_triton.py's kernel with blocks of many rows and whole sequences."""

from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.prefill_configs import paged_form, row
from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture


def paged_prefill_triton(
    query: Tensor,
    cu_queries: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    most_queries: int,
    out: Tensor,
    lse: Tensor,
    config: Config | None = None,
) -> None:
    """Writes out [tokens, H, D] and lse [tokens, H] (operands as checked in paged_prefill).

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("paged_prefill", query, flash_kernel)
    operands = (query, cu_queries, cache, softmax_scale, window, sinks, most_queries, out, lse)
    for launch in launches(*operands, arch=arch, config=config):
        launch.run(query.device)


def launches(
    query: Tensor,
    cu_queries: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    most_queries: int,
    out: Tensor,
    lse: Tensor,
    *,
    arch: int,
    config: Config | None = None,
) -> list[Launch]:
    if config is None:
        form = paged_form(cache.is_codes, query.shape[-1])
        config = chosen("paged_prefill", *row("paged_prefill", arch, form), query.device)
    work = Work(
        query,
        cache.keys,
        cache.values,
        out,
        lse,
        cache.lengths.shape[0],
        most_queries,
        softmax_scale,
        cache=cache,
        cu_queries=cu_queries,
        sinks=sinks,
        window=window,
    )
    return flash_launches(work, config, 1, arch)
