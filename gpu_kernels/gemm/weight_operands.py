"""The operands that the products of 16-bit activations and quantized weights share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.gemm.gguf_layout import KQuantWeight
from gpu_kernels.gemm.split_k import Workspace
from gpu_kernels.gemm.words_layout import WordsWeight


@dataclass(frozen=True, slots=True)
class WeightOperands:
    """The inputs of one product; a subclass checks them.

    x          [M, K] float16 or bfloat16, any strides
    weight     [N, K] in the layout of the op
    bias       [N] float16, bfloat16 or float32
    workspace  None: allocated, and zeroed by one launch more, where the product is split over K
    """

    x: Tensor
    weight: WordsWeight | KQuantWeight
    bias: Tensor | None = None
    workspace: Workspace | None = None

    def dense_bias(self) -> Tensor | None:
        return None if self.bias is None else self.bias.contiguous()

    def empty(self) -> Tensor:
        """y [M, N] in x's dtype, to be written"""
        return torch.empty(self.x.shape[0], self.weight.num_rows, dtype=self.x.dtype, device=self.x.device)
