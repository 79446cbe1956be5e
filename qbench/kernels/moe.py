"""The experts of a layer as two fused tasks: equal bit for bit to a loop of the same products."""

from collections.abc import Iterator
from functools import partial

import numpy as np

import cpu_kernels
from cpu_kernels.moe import ExpertRef, experts_ref
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from qbench.kernels.linear import OP_PREFIX, fixed_paths, packed_formats
from qbench.kernels.random_weight import random_weight
from quant.formats import get_format

HIDDEN, FFN_SIZES, NUM_SHARED = 256, (256, 512, 256, 256), 1  # the last expert is shared
SHAPES = ((1, 1), (3, 3), (17, 2))  # M, experts per token
SEED = 17


def experts() -> list[Kernel]:
    """One a format, under the implementations of its linears."""
    return [Kernel(f"moe_{name}", partial(problems, name), OP_PREFIX + name) for name in packed_formats()]


def problems(format_name: str) -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    nets = [
        [packed(format_name, shape, rng) for shape in ((ffn, HIDDEN), (ffn, HIDDEN), (HIDDEN, ffn))]
        for ffn in FFN_SIZES
    ]
    layer = cpu_kernels.PackedExperts(*map(list, zip(*nets, strict=True)), NUM_SHARED)
    num_routed = len(FFN_SIZES) - NUM_SHARED
    for num_tokens, num_chosen in SHAPES:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
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
