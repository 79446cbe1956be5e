"""MLA prefill in Triton: flash_triton.py's kernel over dense rows, with keys wider than values."""

from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Sequences, Work, flash_launches, most_queries
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.mla_prefill import Operands
from gpu_kernels.attention.prefill_configs import row
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def mla_prefill_triton(operands: Operands, out: Tensor, lse: Tensor, config: Config | None = None) -> None:
    """Writes out [tokens, H, 128] and lse [tokens, H]."""
    TUNED.run(operands, out, lse, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row("mla_prefill", arch, "dense, 192 and 128")


def launches(operands: Operands, out: Tensor, lse: Tensor, config: Config, arch: int) -> list[Launch]:
    work = Work(
        query=operands.query,
        keys=operands.keys,
        values=operands.values,
        out=out,
        lse=lse,
        sequences=Sequences(
            operands.cu_queries.shape[0] - 1,
            most_queries(operands.query, operands.most_queries),
            operands.cu_queries,
            operands.cu_keys,
        ),
        softmax_scale=operands.softmax_scale,
    )
    return flash_launches(work, config, 1, arch)


TUNED = Tuned("mla_prefill", flash_kernel, row_of, launches)
