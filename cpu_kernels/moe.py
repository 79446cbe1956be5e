"""Routed experts: the definition of their arithmetic, and of the choice among them.

    hidden[m]  = silu(gate_e(x[m])) * up_e(x[m])                         as cpu_kernels.fused defines silu_mul
    y[m]       = sum over the experts e that m chose, ascending, of  weight[m, e] * down_e(hidden[m])

gate_e, up_e and down_e are products as cpu_kernels.linear defines them, each with its own rounding of its input.
hidden, the products and y are float32; a multiply and an add of the sum are two roundings. So the fused kernels equal
this file bit for bit if they run the same products, under every instruction set and with any number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cpu_kernels.fused import silu_mul_ref

LEAST_SUM = 1e-20  # of the chosen weights' sum, if it is made 1: sigmoids may all vanish

Product = Callable[[np.ndarray], np.ndarray]  # [n, K] float32 -> [n, N] float32


@dataclass(frozen=True, slots=True)
class ExpertRef:
    """The three products of one expert."""

    gate: Product
    up: Product
    down: Product


def experts_ref(
    x: np.ndarray,
    chosen: np.ndarray,
    weights: np.ndarray,
    experts: Sequence[ExpertRef],
    shared: Sequence[ExpertRef] = (),
) -> np.ndarray:
    """One expert after the other, with the tokens that chose it.

    x        [M, K] float32
    chosen   [M, k] int64: indices of experts
    weights  [M, k] float32: weights of their outputs
    shared   experts that every token passes through besides, with weight 1, after those
    returns  [M, K] float32
    source   Shazeer et al. 2017, arXiv:1701.06538, section 2
    """
    y = np.zeros_like(x)
    for index, expert in enumerate(experts):
        for token, place in zip(*np.nonzero(chosen == index), strict=True):
            y[token] += weights[token, place] * expert_ref(expert, x[token : token + 1])[0]
    for expert in shared:
        y += expert_ref(expert, x)
    return y


def expert_ref(expert: ExpertRef, x: np.ndarray) -> np.ndarray:
    """[n, K] float32 -> [n, K] float32"""
    return expert.down(silu_mul_ref(expert.gate(x), expert.up(x)))


def route_ref(
    logits: np.ndarray,
    num_chosen: int,
    scoring: str = "softmax",
    num_groups: int = 1,
    groups_per_token: int = 1,
    best_of_group: int = 1,
    choice_bias: np.ndarray | None = None,
    is_normed: bool = False,
    factor: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Each token's experts, the best first and of equals the first, and the weights of their outputs.

    logits       [M, E] float32; scores are float32, computed in float64
    choice_bias  [E] added to the scores to choose alone
    returns      [M, k] int64, [M, k] float32; NaN counts as the highest score, so that it is seen
    source       groups by their best: DeepSeek-V2, arXiv:2405.04434, section 2.2.2; by several, sigmoids and the bias:
                 DeepSeek-V3, arXiv:2412.19437, section 2.1.2
    """
    chosen = np.empty((len(logits), num_chosen), np.int64)
    weights = np.empty((len(logits), num_chosen), np.float32)
    for row, its, counts in zip(logits.astype(np.float64), chosen, weights, strict=True):
        raised = np.exp(-row) if scoring == "sigmoid" else np.exp(row - row.max())
        scores = (1 / (1 + raised) if scoring == "sigmoid" else raised / raised.sum()).astype(np.float32)
        preferred = scores if choice_bias is None else scores + choice_bias
        grouped = preferred.reshape(num_groups, -1)
        of_group = [group[_highest(group, best_of_group)].sum() for group in grouped]
        groups = _highest(np.array(of_group, np.float32), groups_per_token)
        in_reach = np.isin(np.arange(num_groups), groups).repeat(grouped.shape[1])
        its[:] = _highest(np.where(in_reach, preferred, -np.inf), num_chosen)
        counts[:] = scores[its]
        if is_normed:
            counts /= np.maximum(np.float32(sum(counts, np.float32(0))), np.float32(LEAST_SUM))
        counts *= np.float32(factor)
    return chosen, weights


def _highest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the highest, the highest first, of equals the first."""
    return np.lexsort((-values, ~np.isnan(values)))[:count]
