"""LLM.int8()'s product in Triton: code_gemm_triton.py's kernel over int8 codes with outlier features, which are added
to the scaled sums in registers; the maths is in llm_int8_gemm.py.
"""

from torch import Tensor

from gpu_kernels.gemm import w8a8_gemm_configs
from gpu_kernels.gemm.code_gemm_triton import code_gemm_kernel, code_launch
from gpu_kernels.gemm.llm_int8_gemm import Operands
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned

# A thread's sums. With them the outliers' addresses and tiles fit its 255 registers; with 128 they spill.
MAX_SUMS = 64


def row(arch: int, num_tokens: int) -> tuple[str, list[Config]]:
    """(name, candidates) of w8a8_gemm's row, without the tile shapes that leave no room for the outliers."""
    name, candidates = w8a8_gemm_configs.row(arch, num_tokens)
    return name, [each for each in candidates if each.block_m * each.block_n <= MAX_SUMS * 32 * each.num_warps]


def llm_int8_gemm_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [M, N], with the tile shape that the table has for it."""
    TUNED.run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return row(arch, operands.num_tokens)


def launches(operands: Operands, y: Tensor, config: Config, arch: int) -> list[Launch]:
    x, features, outlier_weight = operands.x, operands.outlier_features, operands.outlier_weight
    outliers = {
        "x_ptr": x,
        "features_ptr": features,
        "outlier_weight_ptr": outlier_weight,
        "F": features.numel(),
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_f": features.stride(0),
        "stride_on": outlier_weight.stride(0),
        "stride_of": outlier_weight.stride(1),
    }
    return code_launch(operands, y, config, arch, outliers)


TUNED = Tuned("llm_int8_gemm", code_gemm_kernel, row_of, launches)
