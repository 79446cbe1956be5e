"""The operands that W8A8, FP8 and LLM.int8() share: codes times codes, with scales for the rows of each."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpu_kernels.gemm.checks import FLOATS
from gpu_kernels.gemm.split_k import Workspace


@dataclass(frozen=True, slots=True)
class CodeOperands:
    """x_q [M, K] and weight_q [N, K] in any strides, and their scales.

    bias       [N] float16, bfloat16 or float32
    workspace  None: allocated, and zeroed by one launch more, if the product is split over K
    A subclass adds the op's other operands, with `result_dtype`, and checks them all.
    """

    x_q: Tensor
    x_scale: Tensor
    weight_q: Tensor
    weight_scale: Tensor
    bias: Tensor | None = field(default=None, kw_only=True)
    workspace: Workspace | None = field(default=None, kw_only=True)

    @property
    def result_dtype(self) -> torch.dtype:
        """y's"""
        raise NotImplementedError

    @property
    def num_tokens(self) -> int:
        return len(self.x_q)

    @property
    def has_blocks(self) -> bool:
        """Whether there is a scale for each block of the weights, and not one for each channel or for all of them."""
        return self.weight_scale.dim() == 2

    def scales(self) -> tuple[Tensor, Tensor]:
        """(of x_q [M], of weight_q [N]); a scale of a whole tensor is repeated, scales of blocks pass."""
        if self.has_blocks:
            return self.x_scale, self.weight_scale
        return self.x_scale.expand(len(self.x_q)), self.weight_scale.expand(len(self.weight_q))

    def empty(self) -> Tensor:
        """y [M, N], to be written"""
        return torch.empty(len(self.x_q), len(self.weight_q), dtype=self.result_dtype, device=self.x_q.device)


@dataclass(frozen=True, slots=True)
class CastOperands(CodeOperands):
    """Those of an op whose caller chooses y's type, out_dtype."""

    out_dtype: torch.dtype = torch.bfloat16

    @property
    def result_dtype(self) -> torch.dtype:
        return self.out_dtype

    def check_out_dtype(self, op: str) -> None:
        if self.out_dtype not in FLOATS:
            raise NotImplementedError(f"{op}: got out_dtype {self.out_dtype}, expected one of {FLOATS}")


def scale_shape(scale: Tensor, num_rows: int) -> list[int]:
    """The shape that a scale must have: one for each row, unless it is one for the whole tensor."""
    return [1] if list(scale.shape) == [1] else [num_rows]
