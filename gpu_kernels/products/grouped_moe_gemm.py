"""The routed experts of a layer: gate and up fused with SiLU, then down with the routing weight.

    hidden[m, j] = silu(x[m] @ gate_e.T) * (x[m] @ up_e.T)                    e = chosen[m, j], rounded to x's dtype
    y[m]         = sum_j routing_weight[m, j] * (hidden[m, j] @ down_e.T)

(token, place) pairs are sorted by expert, so that an expert's weights are read once for all of its tokens.

source  Shazeer et al. 2017, arXiv:1701.06538, section 2; Gale et al. 2022, MegaBlocks, arXiv:2211.15841: grouped tiles
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.products.checks import HALVES, check_matrix, check_operands


def grouped_moe_gemm_ref(x: Tensor, chosen: Tensor, routing_weight: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """y [M, K] float64: the oracle, one expert after the other, hidden not rounded.

    x        [M, K] float            chosen  [M, top] integer in [0, E)    routing_weight  [M, top] float
    gate_up  [E, 2 * I, K] float, gate's rows first                        down            [E, K, I] float
    """
    y = x.new_zeros(x.shape, dtype=torch.float64)
    for expert in range(len(gate_up)):
        token, place = torch.nonzero(chosen == expert, as_tuple=True)
        gate, up = (x[token].double() @ gate_up[expert].double().T).chunk(2, dim=1)  # [n, I] each
        of_expert = torch.nn.functional.silu(gate) * up @ down[expert].double().T  # [n, K]
        y.index_add_(0, token, of_expert * routing_weight[token, place].double()[:, None])
    return y


def grouped_moe_gemm(
    x: Tensor, chosen: Tensor, routing_weight: Tensor, gate_up: Tensor, down: Tensor, *, impl: str | None = None
) -> Tensor:
    """y [M, K] in x's dtype, by the implementation that `dispatch.IMPLEMENTATIONS` lists first for the device.

    x               [M, K] float16 or bfloat16, any strides
    chosen          [M, top] int32 or int64 in [0, E): experts, each once a token
    routing_weight  [M, top] float32
    gate_up         [E, 2 * I, K] x's dtype, contiguous: gate's rows, then up's
    down            [E, K, I] x's dtype, contiguous
    impl            the name of another entry of the table
    raises          TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (device, architecture, impl)
    """
    _check(x, chosen, routing_weight, gate_up, down)
    run = implementation("grouped_moe_gemm", x.device.type, impl)
    y = torch.zeros_like(x, memory_format=torch.contiguous_format)  # [M, K]
    if y.numel() and chosen.shape[1]:
        run(x, chosen, routing_weight, gate_up, down, y)
    return y


def grouped_moe_gemm_reference(
    x: Tensor, chosen: Tensor, routing_weight: Tensor, gate_up: Tensor, down: Tensor, y: Tensor
) -> None:
    """Writes the oracle's result into y [M, K]: the table's entry "reference"."""
    y.copy_(grouped_moe_gemm_ref(x, chosen, routing_weight, gate_up, down))


def _check(x: Tensor, chosen: Tensor, routing_weight: Tensor, gate_up: Tensor, down: Tensor) -> None:
    check_matrix("grouped_moe_gemm", "x", x, gate_up.shape[-1])
    if gate_up.dim() != 3 or gate_up.shape[0] == 0 or gate_up.shape[1] % 2:
        raise ValueError(f"grouped_moe_gemm: got gate_up {list(gate_up.shape)}, expected [E, 2 * I, K]")
    if chosen.dim() != 2:
        raise ValueError(f"grouped_moe_gemm: got chosen {list(chosen.shape)}, expected [M, top]")
    (E, rows, K), M = gate_up.shape, x.shape[0]
    check_operands(
        "grouped_moe_gemm",
        x.device,
        [
            ("x", x, [M, K], HALVES),
            ("chosen", chosen, [M, chosen.shape[1]], (torch.int32, torch.int64)),
            ("routing_weight", routing_weight, [M, chosen.shape[1]], (torch.float32,)),
            ("gate_up", gate_up, [E, rows, K], (x.dtype,)),
            ("down", down, [E, K, rows // 2], (x.dtype,)),
        ],
    )
    for name, tensor in (("gate_up", gate_up), ("down", down)):
        if not tensor.is_contiguous():
            raise ValueError(f"grouped_moe_gemm: got {name} with strides {tensor.stride()}, expected contiguous")
