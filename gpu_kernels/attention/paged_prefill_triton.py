"""Paged prefill in Triton: flash_triton.py's kernel with blocks of many rows and whole sequences; mass if wanted."""

from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_launches import Sequences, Work, flash_launches, most_queries
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.key_mass_triton import mass_after
from gpu_kernels.attention.paged_prefill import Operands
from gpu_kernels.attention.prefill_configs import paged_form, row
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


def paged_prefill_triton(
    operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None, config: Config | None = None
) -> None:
    """Writes out [tokens, H, D], lse [tokens, H] and, if it is wanted, mass [B, Hkv, S]."""
    TUNED.run(operands, out, lse, mass, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row("paged_prefill", arch, paged_form(operands.cache.is_codes, operands.query.shape[-1]))


def launches(
    operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None, config: Config, arch: int
) -> list[Launch]:
    query, cache = operands.query, operands.cache
    work = Work(
        query=query,
        keys=cache.keys,
        values=cache.values,
        out=out,
        lse=lse,
        sequences=Sequences(cache.seq_lens.shape[0], most_queries(query, operands.most_queries), operands.cu_queries),
        softmax_scale=operands.scale,
        paged=operands,
    )
    found = flash_launches(work, config, 1, arch)
    if mass is None:
        return found
    # By the keys again: scores of many queries would be more bytes.
    observed = min(operands.mass_queries or 0, work.sequences.most_queries)
    return [*found, mass_after(work, mass, observed, arch)]


TUNED = Tuned("paged_prefill", flash_kernel, row_of, launches)
