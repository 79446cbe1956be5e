"""Problems of a layer's steps around its products: the choice of experts, experts, rows, and scores of blocks."""

from collections.abc import Iterator
from functools import partial

import numpy as np

import cpu_kernels
from cpu_kernels import LinearGroup, PackedLinear, Router
from cpu_kernels.blocks import score_blocks, score_blocks_ref
from cpu_kernels.fused import rms_norm_ref, rms_norm_rows, silu_mul_ref, silu_mul_rows
from cpu_kernels.linear_float import linear_float_ref
from cpu_kernels.moe import ExpertRef, experts_ref, route_ref
from qbench.kernels.case import Deviation, Kernel, Problem, deviation, random_weight
from qbench.kernels.linear import OP_PREFIX, fixed_paths, packed_formats
from quant.formats import get_format

ROUTER_HIDDEN, NUM_EXPERTS = 128, 12
RULES = {
    "softmax": {"num_chosen": 3},
    "normed": {"num_chosen": 3, "is_normed": True},
    "sigmoid in groups": {"num_chosen": 4, "scoring": "sigmoid", "num_groups": 3, "groups_per_token": 2},
}
# Scores follow from logits within ROUTER_HIDDEN roundings of their sum of terms, about 10; a weight is their quotient.
ROUTER_BOUND = 4 * 10 * ROUTER_HIDDEN * 2.0**-24


def routers() -> list[Kernel]:
    return [Kernel("router", router_problems, "linear_f32")]


def router_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(21)
    weight = (rng.standard_normal((NUM_EXPERTS, ROUTER_HIDDEN)) * ROUTER_HIDDEN**-0.5).astype(np.float32)
    packed = PackedLinear("f32", get_format("f32").quantize(weight).parts, weight.shape)
    for label, rules in RULES.items():
        for num_tokens in (1, 3, 63):
            x = rng.standard_normal((num_tokens, ROUTER_HIDDEN)).astype(np.float32)
            logits = linear_float_ref(x, weight, rounds_x=False).astype(np.float32)
            expected = routing_table(*route_ref(logits, **rules))
            run = partial(routed, packed, x, rules)
            yield Problem(f"{label} M={num_tokens}", run, lambda y, its=expected: deviation(y, its, ROUTER_BOUND))


def routed(packed: PackedLinear, x: np.ndarray, rules: dict[str, int | str | bool], isa: str) -> tuple[np.ndarray, str]:
    logits = packed.matmul(x, isa=isa)
    return routing_table(*Router(LinearGroup([packed], [None]), **rules).choose(logits)), packed.last_isa


def routing_table(chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[M, experts]: each token's weight of each expert, 0 of one that is not chosen"""
    out = np.zeros((len(chosen), NUM_EXPERTS), np.float32)
    np.put_along_axis(out, chosen, weights, axis=1)
    return out


MOE_HIDDEN, FFN_SIZES, NUM_SHARED = 256, (256, 512, 256, 256), 1  # the last expert is shared
MOE_SHAPES = ((1, 1), (3, 3), (17, 2))  # M, experts per token
MOE_SEED = 17


def experts() -> list[Kernel]:
    """One a format, under the implementations of its linears."""
    return [Kernel(f"moe_{name}", partial(moe_problems, name), OP_PREFIX + name) for name in packed_formats()]


def moe_problems(format_name: str) -> Iterator[Problem]:
    rng = np.random.default_rng(MOE_SEED)
    nets = [
        [packed(format_name, shape, rng) for shape in ((ffn, MOE_HIDDEN), (ffn, MOE_HIDDEN), (MOE_HIDDEN, ffn))]
        for ffn in FFN_SIZES
    ]
    layer = cpu_kernels.PackedExperts(*map(list, zip(*nets, strict=True)), NUM_SHARED)
    num_routed = len(FFN_SIZES) - NUM_SHARED
    for num_tokens, num_chosen in MOE_SHAPES:
        x = rng.standard_normal((num_tokens, MOE_HIDDEN)).astype(np.float32)
        chosen = rng.permuted(np.tile(np.arange(num_routed), (num_tokens, 1)), axis=1)[:, :num_chosen].copy()
        weights = rng.random((num_tokens, num_chosen), dtype=np.float32)
        for path, not_for in fixed_paths(format_name).items():
            run = partial(both, layer, nets, (x, chosen, weights), path)
            label = f"{path or 'automatic'} M={num_tokens} of {num_chosen}"
            yield Problem(label, run, lambda y: deviation(y[0], y[1], 0.0), not_for)


def packed(format_name: str, shape: tuple[int, int], rng: np.random.Generator) -> cpu_kernels.PackedLinear:
    qtensor = random_weight(get_format(format_name), shape, rng)
    return cpu_kernels.PackedLinear(format_name, qtensor.parts | qtensor.shared, shape)


def both(layer, nets, inputs: tuple[np.ndarray, ...], path: str | None, isa: str) -> tuple[np.ndarray, str]:
    """[2, M, K]: the output of the fused tasks, and that of the loop of single products under the same instruction
    set.
    """
    refs = [ExpertRef(*(partial(linear.matmul, isa=isa, path=path) for linear in three)) for three in nets]
    out = np.full_like(inputs[0], np.nan)
    layer.forward(*inputs, isa=isa, path=path, out=out)
    (ran,) = set(layer.last_isa)
    x, chosen, weights = inputs
    return np.stack((out, experts_ref(x, chosen, weights, refs[:-NUM_SHARED], refs[-NUM_SHARED:]))), ran


ROW_SHAPES = ((1, 1), (3, 63), (2, 64), (7, 131), (131, 257))  # M, K; 64 sums side by side
EPS = 1e-5
ROW_SEED = 16


def fused_rows() -> list[Kernel]:
    return [Kernel("fused_rows", row_problems)]


def row_problems() -> Iterator[Problem]:
    """Odd shapes; magnitudes from nothing to overflow, NaN and infinity in the largest."""
    rng = np.random.default_rng(ROW_SEED)
    for shape in ROW_SHAPES:
        x, other = rng.standard_normal((2, *shape)).astype(np.float32)
        weight = rng.standard_normal(shape[1]).astype(np.float32)
        if shape == ROW_SHAPES[-1]:
            x *= np.float32(10.0) ** rng.integers(-38, 38, (shape[0], 1)).astype(np.float32)
            x[2, 17], x[5, 0], other[7, 3] = np.nan, -np.inf, np.inf
        yield norm_problem(x, weight)
        yield silu_problem(x, other)


def norm_problem(x: np.ndarray, weight: np.ndarray) -> Problem:
    return Problem(
        f"rms_norm M={len(x)} K={x.shape[1]}",
        lambda isa: rms_norm_rows(x, weight, EPS, isa, np.full_like(x, np.nan)),
        lambda y: deviation(y, rms_norm_ref(x, weight, EPS), 0.0),
    )


def silu_problem(gate: np.ndarray, up: np.ndarray) -> Problem:
    return Problem(
        f"silu_mul M={len(gate)} K={gate.shape[1]}",
        lambda isa: silu_mul_rows(gate, up, isa, np.full_like(gate, np.nan)),
        lambda y: deviation(y, silu_mul_ref(gate, up), 0.0),
    )


BLOCK_SHAPES = ((1, 1, 1, 16), (2, 3, 63, 48), (1, 8, 131, 128))  # Q, G, n, C
BLOCK_SEED = 21


def block_scores() -> list[Kernel]:
    return [Kernel("block_scores", block_problems)]


def block_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(BLOCK_SEED)
    for queries, heads, num_rows, size in BLOCK_SHAPES:
        rows = rng.standard_normal((heads, num_rows, size)).astype(np.float16)
        yield block_problem(rows, rng.standard_normal((queries, heads, size)).astype(np.float32))


def block_problem(rows: np.ndarray, vectors: np.ndarray) -> Problem:
    num_rows, size = rows.shape[1:]

    def run(isa: str) -> tuple[np.ndarray, str]:
        scores = np.full((*vectors.shape[:2], num_rows), np.nan, np.float32)
        return scores, score_blocks(rows.view(np.uint16), num_rows, vectors, scores, isa=isa)

    def check(got: np.ndarray) -> Deviation:
        """float32 sums of `size` fused products, whose roundings are at most 2**-24 of the magnitudes' sum each."""
        magnitudes = score_blocks_ref(np.abs(rows), np.abs(vectors))
        return deviation(got, score_blocks_ref(rows, vectors), 2.0**-24 * (size + 1) * magnitudes)

    return Problem(f"Q={len(vectors)} G={len(rows)} n={num_rows} C={size}", run, check)
