"""MLA prefill in Triton: flash_triton.py's kernel over dense rows, with keys wider than values."""

from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Work, flash_launches
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.prefill_configs import row
from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture

FORM = "dense, 192 and 128"


def mla_prefill_triton(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    cu_queries: Tensor,
    cu_keys: Tensor,
    softmax_scale: float,
    most_queries: int,
    out: Tensor,
    lse: Tensor,
    config: Config | None = None,
) -> None:
    """Writes out [tokens, H, 128] and lse [tokens, H] (operands as checked in mla_prefill).

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("mla_prefill", query, flash_kernel)
    operands = (query, keys, values, cu_queries, cu_keys, softmax_scale, most_queries, out, lse)
    for launch in launches(*operands, arch=arch, config=config):
        launch.run(query.device)


def launches(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    cu_queries: Tensor,
    cu_keys: Tensor,
    softmax_scale: float,
    most_queries: int,
    out: Tensor,
    lse: Tensor,
    *,
    arch: int,
    config: Config | None = None,
) -> list[Launch]:
    if config is None:
        config = chosen("mla_prefill", *row("mla_prefill", arch, FORM), query.device)
    batch = cu_queries.shape[0] - 1
    bounds = {"cu_queries": cu_queries, "cu_keys": cu_keys}
    work = Work(query, keys, values, out, lse, batch, most_queries, softmax_scale, **bounds)
    return flash_launches(work, config, 1, arch)
