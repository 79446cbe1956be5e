"""The W8A8 product in Triton: code_gemm_triton.py's kernel over int8 codes; the maths is in w8a8_gemm.py."""

from torch import Tensor

from gpu_kernels.gemm.code_gemm_triton import code_gemm_kernel, code_launch
from gpu_kernels.gemm.w8a8_gemm import Operands
from gpu_kernels.gemm.w8a8_gemm_configs import Config, row
from gpu_kernels.tuned import Tuned


def w8a8_gemm_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [M, N], with the tile shape that the table has for it."""
    TUNED.run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.num_tokens)


TUNED = Tuned("w8a8_gemm", code_gemm_kernel, row_of, code_launch)
