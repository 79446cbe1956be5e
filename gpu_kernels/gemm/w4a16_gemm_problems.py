"""Problems on which the 4-bit product is checked, compiled and timed."""

import torch

from gpu_kernels.gemm.proof import TOKENS, WEIGHTS
from gpu_kernels.gemm.weight_only_problems import Kind, weight_only_problem
from gpu_kernels.proof.problems import Problem

G128 = Kind(4, 128)
ANY_ORDER = Kind(4, 128, symmetric=False, act_order=True)
ODD = (  # M, N, K, kind
    (1, 131, 320, Kind(4, 64)),
    (16, 3, 160, Kind(4, 32)),
    (5, 67, 256, ANY_ORDER),
    (17, 131, 131, Kind(4, None)),
)


def problems() -> list[Problem]:
    timed = [weight_only_problem(M, N, K, G128) for N, K in WEIGHTS for M in TOKENS]
    others = [weight_only_problem(16, 8192, 8192, kind) for kind in (Kind(4, 32), Kind(4, None), ANY_ORDER)]
    odd = [weight_only_problem(*row, torch.float16, is_timed=False) for row in ODD]
    return [*timed, *others, *odd, weight_only_problem(5, 131, 256, ANY_ORDER, is_timed=False)]
