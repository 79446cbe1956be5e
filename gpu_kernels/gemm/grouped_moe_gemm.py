"""The routed experts of a layer: gate and up fused with SiLU, then down with the routing weight.

    hidden[m, j] = silu(x[m] @ gate_e.T) * (x[m] @ up_e.T)                    e = chosen[m, j], rounded to x's dtype
    y[m]         = sum_j routing_weight[m, j] * (hidden[m, j] @ down_e.T)

Experts are in x's type, or of 4 or 8 bits in words (words_layout.py): their sums are scaled as weight_only_gemm's.
(token, place) pairs are sorted by expert, so that an expert's weights are read once for all of its tokens.

source  Shazeer et al. 2017, arXiv:1701.06538, section 2; Gale et al. 2022, MegaBlocks, arXiv:2211.15841: grouped tiles
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.gemm.checks import HALVES, check_matrix, check_operands
from gpu_kernels.gemm.words_experts import WordsExperts, expert_ref

Experts = Tensor | WordsExperts


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    x               [M, K] float16 or bfloat16, any strides
    chosen          [M, top] int32 or int64 in [0, E): experts, each once per token
    routing_weight  [M, top] float32
    gate_up         [E, 2 * I, K] x's dtype, contiguous: gate's rows, then up's; or WordsExperts of 4 or 8 bits
    down            [E, K, I] x's dtype, contiguous; or WordsExperts where gate_up is
    raises          TypeError (dtypes), ValueError (shapes, strides, devices)
    """

    x: Tensor
    chosen: Tensor
    routing_weight: Tensor
    gate_up: Experts
    down: Experts

    def __post_init__(self) -> None:
        op, x, chosen, gate_up, down = "grouped_moe_gemm", self.x, self.chosen, self.gate_up, self.down
        check_matrix(op, "x", x, gate_up.shape[-1])
        if len(gate_up.shape) != 3 or gate_up.shape[0] == 0 or gate_up.shape[1] % 2:
            raise ValueError(f"{op}: got gate_up {list(gate_up.shape)}, expected [E, 2 * I, K]")
        if chosen.dim() != 2:
            raise ValueError(f"{op}: got chosen {list(chosen.shape)}, expected [M, top]")
        if isinstance(gate_up, WordsExperts) != isinstance(down, WordsExperts):
            kinds = f"{type(gate_up).__name__} and down {type(down).__name__}"
            raise TypeError(f"{op}: got gate_up {kinds}, expected both in words or neither")
        (E, rows, K), M = gate_up.shape, x.shape[0]
        if list(down.shape) != [E, K, rows // 2]:
            raise ValueError(f"{op}: got down {list(down.shape)}, expected {[E, K, rows // 2]}")
        parts = [*_parts("gate_up", gate_up, x.dtype), *_parts("down", down, x.dtype)]
        check_operands(
            op,
            ("x", x, [M, K], HALVES),
            ("chosen", chosen, [M, chosen.shape[1]], (torch.int32, torch.int64)),
            ("routing_weight", self.routing_weight, [M, chosen.shape[1]], (torch.float32,)),
            *parts,
        )
        for name, tensor, *_ in parts:
            if tensor is not None and not tensor.is_contiguous():
                raise ValueError(f"{op}: got {name} with strides {tensor.stride()}, expected contiguous")

    @property
    def bits(self) -> int:
        """Bits of a weight."""
        return self.gate_up.bits if isinstance(self.gate_up, WordsExperts) else 16

    @property
    def tokens_per_expert(self) -> float:
        return self.chosen.numel() / len(self.gate_up)

    def empty(self) -> Tensor:
        """y [M, K], to be written"""
        return torch.empty_like(self.x, memory_format=torch.contiguous_format)


def grouped_moe_gemm_ref(x: Tensor, chosen: Tensor, routing_weight: Tensor, gate_up: Experts, down: Experts) -> Tensor:
    """y [M, K] float64: the oracle, one expert after the other, hidden not rounded.

    x        [M, K] float            chosen  [M, top] integer in [0, E)    routing_weight  [M, top] float
    gate_up  [E, 2 * I, K] float or in words, gate's rows first            down            [E, K, I] likewise
    """
    y = x.new_zeros(x.shape, dtype=torch.float64)
    for expert in range(len(gate_up)):
        token, place = torch.nonzero(chosen == expert, as_tuple=True)
        gate, up = (x[token].double() @ expert_ref(gate_up, expert).T).chunk(2, dim=1)  # [n, I] each
        of_expert = torch.nn.functional.silu(gate) * up @ expert_ref(down, expert).T  # [n, K]
        y.index_add_(0, token, of_expert * routing_weight[token, place].double()[:, None])
    return y


def grouped_moe_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, K] in x's dtype, by the table's first entry for the device or by `impl`."""
    run = implementation("grouped_moe_gemm", operands.x.device.type, impl)
    y = operands.empty()
    if not y.numel() or not operands.chosen.shape[1]:
        return y.zero_()
    run(operands, y)
    return y


def grouped_moe_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, K]: the table's entry "reference"."""
    routed = operands.x, operands.chosen, operands.routing_weight
    y.copy_(grouped_moe_gemm_ref(*routed, operands.gate_up, operands.down))


def _parts(name: str, weights: Experts, dtype: torch.dtype) -> list:
    if isinstance(weights, WordsExperts):
        return weights.parts(name)
    return [(name, weights, list(weights.shape), (dtype,))]
