"""LLM.int8() of a decoder: int8 codes, and the features that hold outliers in 16 bits, all without asking the host."""

import torch
from torch import Tensor

from gpu_kernels.decode.linears import CodeWeight, named, size_bytes
from gpu_kernels.gemm.llm_int8_gemm import Operands, llm_int8_gemm

THRESHOLD = 6.0
# Outlier features that a call may have in addition to the known ones. Dettmers et al. 2022, section 4.1: at most seven
# in models of up to 13 billion weights; the first token of a text may have dozens. If there are more, the loudest are
# kept, and the others are int8 like the rest, which costs their tokens a coarser scale.
MOST_FEATURES = 32


class LlmInt8Linear:
    """weight [N, K] = weight_q * weight_scale, and for outlier features the weights given for those that are known.

    A feature is an outlier if some token of the call takes it to THRESHOLD. How many there are is known on the GPU
    alone, so the loudest MOST_FEATURES are read, and the weights of those that are no outliers count as 0.

    known           [F] int64 features that are outliers always, with known_weight [N, F]; F may be 0
    source          Dettmers et al. 2022, LLM.int8(), arXiv:2208.07339, section 3.2
    """

    codes: str | None = None

    def __init__(self, weight: CodeWeight, *, known: Tensor, known_weight: Tensor) -> None:
        self.weight, self.known, self.known_weight = weight, known, known_weight.to(weight.dtype)
        self.name, self.num_rows = named("llm_int8_gemm", weight.weight_q), len(weight.weight_q)
        self.size_bytes = size_bytes(weight.weight_q, weight.weight_scale, weight.bias, known, self.known_weight)

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor:
        size = x.abs()
        loudest, features = size.index_fill(1, self.known, 0.0).amax(0).topk(min(MOST_FEATURES, x.shape[1]))  # [F]
        is_outlier = loudest >= THRESHOLD
        is_float = torch.zeros_like(size[0], dtype=torch.bool).scatter(0, features, is_outlier)  # [K]
        # An outlier feature's smaller values count for absmax, and have no code.
        inlier = torch.where(is_float & (size >= THRESHOLD), 0, x).index_fill(1, self.known, 0.0)
        x_scale = (inlier.abs().amax(1).float() / 127).clamp(min=2.0**-126)  # [M]
        x_q = torch.where(is_float, 0, inlier.float() / x_scale[:, None]).round().to(torch.int8)
        weight = self.weight
        found = weight.weight_q[:, features] * weight.weight_scale[:, None] * is_outlier  # [N, F]
        outlier_weight = torch.cat([self.known_weight, found.to(weight.dtype)], 1)
        outlier_features = torch.cat([self.known, features]).to(torch.int32)
        codes, outliers = (x_q, x_scale, weight.weight_q, weight.weight_scale), (x, outlier_features, outlier_weight)
        return llm_int8_gemm(Operands(*codes, *outliers, bias=weight.bias, workspace=weight.workspace))
