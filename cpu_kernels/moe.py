"""Routed experts: the definition of their arithmetic.

    hidden[m]  = silu(gate_e(x[m])) * up_e(x[m])                         as cpu_kernels.fused defines silu_mul
    y[m]       = sum over the experts e that m chose, ascending, of  weight[m, e] * down_e(hidden[m])

gate_e, up_e and down_e are products as cpu_kernels.linear defines them, each with its own rounding of its input.
hidden, the products and y are float32; a multiply and an add of the sum are two roundings. So the fused kernels equal
this file bit for bit where they run the same products, under every instruction set and with any number of threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cpu_kernels.fused import silu_mul_ref

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
    weights  [M, k] float32: what their outputs count
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
