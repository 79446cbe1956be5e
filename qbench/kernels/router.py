"""The choice of experts: scores from a product, the best of them, and their weights."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from cpu_kernels import LinearGroup, PackedLinear, Router
from cpu_kernels.linear_float import linear_float_ref
from cpu_kernels.moe import route_ref
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from quant.formats import get_format

HIDDEN, NUM_EXPERTS = 128, 12
RULES = {
    "softmax": {"num_chosen": 3},
    "normed": {"num_chosen": 3, "is_normed": True},
    "sigmoid in groups": {"num_chosen": 4, "scoring": "sigmoid", "num_groups": 3, "groups_per_token": 2},
}
# Scores follow from logits within HIDDEN roundings of their terms' sum, about 10; a weight is a quotient of scores.
BOUND = 4 * 10 * HIDDEN * 2.0**-24


def routers() -> list[Kernel]:
    return [Kernel("router", router_problems, "linear_f32")]


def router_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(21)
    weight = (rng.standard_normal((NUM_EXPERTS, HIDDEN)) * HIDDEN**-0.5).astype(np.float32)
    packed = PackedLinear("f32", get_format("f32").quantize(weight).parts, weight.shape)
    for label, rules in RULES.items():
        for num_tokens in (1, 3, 63):
            x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
            logits = linear_float_ref(x, weight, rounds_x=False).astype(np.float32)
            expected = table(*route_ref(logits, **rules))
            run = partial(routed, packed, x, rules)
            yield Problem(f"{label} M={num_tokens}", run, lambda y, its=expected: deviation(y, its, BOUND))


def routed(packed: PackedLinear, x: np.ndarray, rules: dict[str, int | str | bool], isa: str) -> tuple[np.ndarray, str]:
    logits = packed.matmul(x, isa=isa)
    return table(*Router(LinearGroup([packed], [None]), **rules).choose(logits)), packed.last_isa


def table(chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[M, experts]: each token's weight of each expert, 0 of one that is not chosen"""
    out = np.zeros((len(chosen), NUM_EXPERTS), np.float32)
    np.put_along_axis(out, chosen, weights, axis=1)
    return out
