"""Problems on which the routed experts are checked, compiled and timed."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.grouped_moe_gemm import Operands, grouped_moe_gemm
from gpu_kernels.gemm.grouped_moe_gemm_triton import grouped_moe_gemm_triton, launches, row_of
from gpu_kernels.gemm.moe_tiles import max_tiles
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.gemm.weight_only_configs import Config as WordsConfig
from gpu_kernels.gemm.weight_only_problems import Kind
from gpu_kernels.gemm.words_experts import WordsExperts, expert_ref
from gpu_kernels.gemm.words_layout import PLANE_K, block_k
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name


@dataclass(frozen=True, slots=True)
class Layer:
    """M tokens that each go to `top` of E experts of K -> I -> K features."""

    M: int
    E: int
    top: int
    I: int
    K: int


def _launches(operands: Operands, y: Tensor, config: Config | WordsConfig, arch: int) -> list[Launch]:
    """Tiles are only counted, since meta tensors cannot be sorted."""
    (M, top), E = operands.chosen.shape, len(operands.gate_up)
    tiles = max_tiles(M * top, E, config.block_m)
    pairs = torch.empty(tiles * config.block_m, dtype=torch.int32, device=y.device)
    experts = torch.empty(tiles, dtype=torch.int32, device=y.device)
    shares = torch.empty(M, top, y.shape[1], dtype=torch.float32, device=y.device)
    return launches(operands, pairs, experts, shares, config)


KERNEL = Configured(grouped_moe_gemm, Operands, grouped_moe_gemm_triton, _launches, row_of)
MIXTRAL = partial(Layer, E=8, top=2, I=14336, K=4096)
DEEPSEEK_V2_LITE = partial(Layer, E=64, top=6, I=1408, K=2048)
TIMED = (DEEPSEEK_V2_LITE(16), DEEPSEEK_V2_LITE(4096), MIXTRAL(1), MIXTRAL(4096), DEEPSEEK_V2_LITE(1))
ODD = (Layer(1, 4, 2, 35, 64), Layer(7, 20, 3, 64, 40), Layer(70, 2, 1, 67, 131))
W4, W8 = Kind(4, 128), Kind(8, None)
TIMED_WORDS = ((DEEPSEEK_V2_LITE(16), W4), (DEEPSEEK_V2_LITE(16), W8), (MIXTRAL(4096), W4), (MIXTRAL(4096), W8))
ANY_ORDER = Kind(4, 128, act_order=True)
TIMED_WORDS += ((DEEPSEEK_V2_LITE(16), ANY_ORDER), (MIXTRAL(4096), ANY_ORDER))
ODD_WORDS = (
    (Layer(7, 5, 2, 128, 256), Kind(4, 128, symmetric=False)),
    (Layer(37, 2, 1, 35, 48), W8),
    (Layer(5, 4, 2, 128, 256), Kind(4, 64, symmetric=False, act_order=True)),
    (Layer(37, 2, 1, 128, 256), ANY_ORDER),
)


def problems() -> list[Problem]:
    timed = [_problem(layer, None, torch.bfloat16, is_timed=True) for layer in TIMED]
    timed += [_problem(*row, torch.bfloat16, is_timed=True) for row in TIMED_WORDS]
    odd = [_problem(layer, None, torch.float16, is_timed=False) for layer in ODD]
    return timed + odd + [_problem(*row, torch.float16, is_timed=False) for row in ODD_WORDS]


def _problem(layer: Layer, kind: Kind | None, dtype: torch.dtype, is_timed: bool) -> Problem:
    """kind  of the experts in words; None: they are of `dtype`"""
    M, E, top, I, K = layer.M, layer.E, layer.top, layer.I, layer.K
    met = min(E, M * top)  # experts whose weights are read: of few tokens about so many, of many all
    bits = 16 if kind is None else kind.bits
    form = dtype_name(dtype) if kind is None else f"w{bits} {kind} {dtype_name(dtype)}"
    return Problem(
        op=Op("grouped_moe_gemm", KERNEL, _reference),
        label=f"M={M} E={E} top={top} I={I} K={K} {form}",
        sizes={"M": M, "E": E, "top": top, "I": I, "K": K, "dtype": form},
        operands=partial(_operands, layer, kind, dtype),
        agrees=_agrees,
        # gate, up and down of those experts; x, y; hidden, written and read; shares in float32, written and read
        num_bytes=met * _expert_bytes(layer, kind) + 2 * 2 * M * K + 2 * 2 * M * top * I + 2 * 4 * M * top * K,
        ops=2 * M * top * 3 * I * K,
        bound="bandwidth" if M * top / E <= 64 else "bf16",
        peers={"torch, expert by expert": Peer(partial(_dense_operands, dtype), _expert_by_expert)},
        is_timed=is_timed,
    )


def _expert_bytes(layer: Layer, kind: Kind | None) -> int:
    """Bytes of gate, up and down: codes; 2 bytes per scale, 1 per zero point."""
    weights = 3 * layer.I * layer.K
    if kind is None:
        return 2 * weights
    groups = 2 * layer.I + layer.K if kind.group_size is None else weights // kind.group_size
    orders = 4 * layer.K + 4 * layer.I if kind.act_order else 0
    return weights * kind.bits // 8 + groups * (2 if kind.symmetric else 3) + orders


def _operands(layer: Layer, kind: Kind | None, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Normal activations; weights of variance about 1 / features, so that hidden and y stay near 1."""
    draw = Draw(device)
    chosen = draw.uniform(layer.M, layer.E).argsort(dim=1)[:, : layer.top]
    return {
        "x": draw.normal(layer.M, layer.K, dtype=dtype),
        "chosen": chosen.int(),
        "routing_weight": draw.uniform(layer.M, layer.top, low=0.1, high=0.5),
        "gate_up": _weights(draw, layer.E, 2 * layer.I, layer.K, kind, dtype),
        "down": _weights(draw, layer.E, layer.K, layer.I, kind, dtype),
    }


def _weights(draw: Draw, E: int, N: int, K: int, kind: Kind | None, dtype: torch.dtype) -> Tensor | WordsExperts:
    """[E, N, K]; of codes any 16 bits, those past K too, and scales in [0.5, 1.5) of the codes' range."""
    if kind is None:
        return draw.normal(E, N, K, dtype=dtype) / math.sqrt(K)
    groups, end = (1 if kind.group_size is None else K // kind.group_size), 2 ** (kind.bits - 1)
    codes = draw.integers(-(2**15), 2**15, E, -(-K // block_k(kind.bits)), N, PLANE_K, dtype=torch.int16)
    scale = (draw.uniform(E, groups, N, low=0.5, high=1.5) / end / math.sqrt(K)).half()
    zero_point = None if kind.symmetric else draw.integers(-end, end, E, groups, N)
    order = draw.uniform(E, K).argsort(dim=1).int() if kind.act_order else None
    return WordsExperts(codes, scale, zero_point, K, kind.group_size, kind.bits, order)


def _reference(x, chosen, routing_weight, gate_up, down) -> tuple[Tensor, Tensor]:
    """(y, its largest loss), float64 [M, K] each.

    A sum over n features in float32 loses up to 4 * sqrt(n) * 2**-23 of its magnitude (as proof.within_sums derives).
    gate's and up's losses reach hidden through silu, whose slope is below 1.1; hidden is rounded to x's type, half of
    one step, and has two roundings in float32 more; all that passes through |down|, and down's own sum loses its part.
    """
    half_step, K, I = torch.finfo(x.dtype).eps / 2, x.shape[1], down.shape[-1]
    y = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    lost = torch.zeros_like(y)
    for expert in range(len(gate_up)):
        token, place = torch.nonzero(chosen == expert, as_tuple=True)
        of_x, weights, back = x[token].double(), expert_ref(gate_up, expert), expert_ref(down, expert).T
        gate, up = (of_x @ weights.T).chunk(2, dim=1)
        gate_lost, up_lost = (4 * math.sqrt(K) * 2**-23 * (of_x.abs() @ weights.abs().T)).chunk(2, dim=1)
        silu = torch.nn.functional.silu(gate)
        hidden = silu * up
        hidden_lost = 1.1 * up.abs() * gate_lost + silu.abs() * up_lost + (half_step + 2**-22) * hidden.abs()
        share = routing_weight[token, place].double()[:, None]
        y.index_add_(0, token, share * (hidden @ back))
        down_lost = (hidden_lost + 4 * math.sqrt(I) * 2**-23 * hidden.abs()) @ back.abs()
        lost.index_add_(0, token, share * down_lost)
    return y, lost


def _agrees(y: Tensor, expected_and_lost: tuple[Tensor, Tensor]) -> bool:
    """y is the expected one within the loss of _reference, twice for losses of losses, and a rounding.

    Subnormal hidden values may come to nothing: a smallest step each is far below either.
    """
    expected, lost = expected_and_lost
    about = torch.finfo(y.dtype)
    bound = about.eps / 2 * expected.abs() + 2 * lost + about.smallest_normal * about.eps
    return bool(((y.double() - expected).abs() <= bound).all())


def _dense_operands(dtype: torch.dtype, operands: dict[str, Any]) -> dict[str, Any]:
    dense = {
        name: torch.stack([expert_ref(operands[name], expert).to(dtype) for expert in range(len(operands[name]))])
        for name in ("gate_up", "down")
    }
    return operands | dense


def _expert_by_expert(x, chosen, routing_weight, gate_up, down) -> Tensor:
    """All tokens through every expert, of which the chosen are kept: a graph can capture this, as it needs no
    sorting.
    """
    y = torch.zeros_like(x)
    for expert in range(len(gate_up)):
        gate, up = (x @ gate_up[expert].T).chunk(2, dim=1)
        share = (routing_weight * (chosen == expert)).sum(dim=1, keepdim=True).to(x.dtype)
        y += (torch.nn.functional.silu(gate) * up @ down[expert].T) * share
    return y
