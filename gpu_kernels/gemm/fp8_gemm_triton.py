"""The FP8 product in Triton: code_gemm_triton.py's kernel over e4m3 codes; the maths is in fp8_gemm.py."""

from torch import Tensor

from gpu_kernels.gemm.code_gemm_triton import code_gemm_kernel, code_launch
from gpu_kernels.gemm.fp8_gemm import BLOCK, Operands
from gpu_kernels.gemm.rows import find_row
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.tuned import Tuned

# Few tokens: the rate is the memory's, so narrow tiles, as many programs as N gives, or two per multiprocessor if that
# is more, and deep pipelines: 8 stages of 32 rows are 32 KB on their way, where 23 are needed on each multiprocessor.
# Many tokens: a tile's sum and its step's sum take 64 registers per thread each; with 128 x 256 over 256 threads they
# spill. Two programs of 64 x 128 on a multiprocessor multiply and add in turn.
ROWS = [
    (16, [Config(16, 32, BLOCK, 1, 4, 8, 2), Config(16, 64, BLOCK, 1, 4, 6, 2)]),
    (64, [Config(64, 32, BLOCK, 8, 4, 6), Config(64, 64, BLOCK, 8, 4, 5)]),
    (None, [Config(64, 128, BLOCK, 8, 4, 4), Config(64, 128, BLOCK, 8, 8, 4), Config(128, 128, BLOCK, 8, 8, 4)]),
]
# Floats made of the codes take registers too: half of a tile's columns, or fewer.
ROWS_80 = [
    (16, [Config(16, 32, BLOCK, 1, 4, 8, 2)]),
    (64, [Config(64, 32, BLOCK, 8, 4, 5)]),
    (None, [Config(128, 64, BLOCK, 8, 8, 3)]),
]
CONFIGS = {80: ROWS_80, 90: ROWS, 100: ROWS}


def row(arch: int, num_tokens: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for an architecture and M.

    raises  NotImplementedError if the architecture has no rows
    """
    return find_row("fp8_gemm", CONFIGS, arch, num_tokens)


def fp8_gemm_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [M, N], with the tile shape that the table has for it; a step is as long as a block of scales."""
    TUNED.run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.num_tokens)


TUNED = Tuned("fp8_gemm", code_gemm_kernel, row_of, code_launch)
