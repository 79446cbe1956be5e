"""Problems on which the 8-bit weight-only product is checked, compiled and timed."""

import torch

from gpu_kernels.gemm.proof import WEIGHTS
from gpu_kernels.gemm.weight_only_problems import Kind, weight_only_problem
from gpu_kernels.proof.problems import Problem

TOKENS = (1, 16, 4096)
CHANNEL = Kind(8, None)
ODD = ((1, 131, 320, Kind(8, 64)), (16, 3, 160, Kind(8, 32)), (5, 67, 160, CHANNEL))  # M, N, K, kind


def problems() -> list[Problem]:
    timed = [weight_only_problem(M, N, K, CHANNEL) for N, K in WEIGHTS for M in TOKENS]
    odd = [weight_only_problem(*row, torch.float16, is_timed=False) for row in ODD]
    return [*timed, *odd, weight_only_problem(3, 131, 131, CHANNEL, is_timed=False)]
