"""Tokens of every packed linear, in every instruction set and on every path that gives the same bits: one table."""

import numpy as np
import pytest
from support.block_weights import HALVES, SIMILAR, random_blocks
from support.close import assert_close
from support.isas import isas_of
from support.random_linear import random_qtensor

import cpu_kernels
from cpu_kernels import PackedLinear

FLOATS = ("bf16", "f16", "f32")
GROUPS = ("w4g128", "w4g64-asym", "w8-asym", "w2", "w3g96")
OTHERS = pytest.mark.exhaustive("every instruction set takes seconds; every run has formats of the same code")
# format -> the op whose implementations multiply it, features of a row that fill no step, paths of the same bits
TABLE = {
    **{name: (f"linear_{name}", 67, (None,)) for name in FLOATS},
    "w8a8": ("linear_w8a8", 67, (None,)),
    **{name: (f"linear_{name}", 256, ("direct", "tile")) for name in HALVES if cpu_kernels.has_packed_linear(name)},
    **{name: ("linear_q8_0", 768, ("direct", "tile")) for name in GROUPS},
}
each_linear = pytest.mark.parametrize(
    "name, isa",
    [
        pytest.param(name, *isa.values, marks=[*isa.marks, *([OTHERS] if name in SIMILAR else [])])
        for name, (op, _, paths) in TABLE.items()
        for isa in isas_of(op)
        if isa.values != ("amx",) or paths == (None,)  # test_linear_bf16.py has the tiles of codes
    ],
)


def pack(name: str, num_rows: int, row_size: int) -> PackedLinear:
    if name in HALVES:
        return PackedLinear(name, {"blocks": random_blocks(name, num_rows, row_size)}, (num_rows, row_size))
    parts = random_qtensor(name, max(num_rows, 1), row_size).parts
    return PackedLinear(name, {part: array[:num_rows] for part, array in parts.items()}, (num_rows, row_size))


def random_x(num_tokens: int, row_size: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((num_tokens, row_size)).astype(np.float32)


@each_linear
def test_a_token_sees_neither_its_batch_nor_the_path(name, isa, matmul):
    paths = TABLE[name][2]
    packed, x = pack(name, 79, 768), random_x(29, 768)
    alone = np.concatenate([matmul(packed, x[m : m + 1], isa, path=paths[0]) for m in range(len(x))])
    for path in paths:
        for num_tokens in (2, 5, 7, 12, 23, 29):
            assert_close(matmul(packed, x[:num_tokens], isa, path=path), alone[:num_tokens])


@each_linear
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf], ids=["nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("place", [0, 37, -1])
def test_nan_and_infinity_reach_every_output_of_only_their_token(name, isa, matmul, bad, place):
    """Rounding to integers makes NaN of infinity, too."""
    _, row_size, paths = TABLE[name]
    packed, x = pack(name, 19, row_size), random_x(7, row_size)
    clean = matmul(packed, x, isa)
    x[2, place] = bad
    for path in paths:
        y = matmul(packed, x, isa, path=path)
        assert not np.isfinite(y[2]).any() and (name in FLOATS or np.isnan(y[2]).all())
        assert_close(np.delete(y, 2, axis=0), np.delete(clean, 2, axis=0))


@each_linear
@pytest.mark.parametrize("shape", [(0, 16), (3, 0), (0, 0)], ids=["M=0", "N=0", "M=N=0"])
def test_empty_products_have_empty_results(name, isa, matmul, shape):
    _, row_size, paths = TABLE[name]
    packed = pack(name, shape[1], row_size)
    for path in paths:
        assert matmul(packed, np.ones((shape[0], row_size), np.float32), isa, path=path).shape == shape
