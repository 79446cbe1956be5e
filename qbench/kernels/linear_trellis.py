"""Linears of a trellis code: inputs are turned and rounded, outputs are turned back."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

import cpu_kernels
from cpu_kernels.linear import round_activations_ref, rounding_bound
from cpu_kernels.linear_float import round_to_bf16_ref
from qbench.kernels.case import Deviation, Kernel, Problem, deviation, random_weight
from qbench.kernels.linear import BF16, OP_PREFIX, PATH, fixed_paths, multiply
from quant.formats import TrellisFormat
from quant.formats.trellis import SIDE, matrix_of, turn_size
from quant.qtensor import QTensor
from quant.turn import turn_runs

# M, N, K: tiles are 16 by 16, steps 32 long, direct products 8 tokens high, stretches 512 long.
SHAPES = ((1, 16, 16), (3, 48, 96), (8, 16, 544), (13, 32, 128), (131, 80, 272))
STATE_BITS = (16, 9)
SEED = 31


def trellis_linears() -> list[Kernel]:
    return [Kernel(f"{OP_PREFIX}trellis-w{bits}", partial(problems, bits)) for bits in range(1, 5)]


def problems(bits: int) -> Iterator[Problem]:
    for state_bits in STATE_BITS:
        fmt = TrellisFormat(bits, state_bits)
        for shape in SHAPES:
            yield from of_paths(*random_inputs(fmt, *shape), f"{fmt.name} {shape}")
    weight, x = random_inputs(TrellisFormat(bits, STATE_BITS[0]), *SHAPES[-1])
    x = x[:15].copy()
    x[2, 17], x[13, 0] = np.nan, -np.inf
    yield from of_paths(weight, x, f"{weight.format} NaN and infinity")


def random_inputs(fmt: TrellisFormat, num_tokens: int, num_rows: int, row_size: int) -> tuple[QTensor, np.ndarray]:
    """weight [N, K], x [M, K] with outliers"""
    rng = np.random.default_rng((SEED, num_tokens, row_size))
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    x[num_tokens // 2, :: 1 + row_size // 3] *= 20
    return random_weight(fmt, (num_rows, row_size), rng), x


def of_paths(weight: QTensor, x: np.ndarray, label: str) -> Iterator[Problem]:
    packed = cpu_kernels.PackedLinear(weight.format, weight.parts, weight.shape)
    for path, not_for in fixed_paths(weight.format).items():
        of_path = trellis_bf16_ref if path == BF16 else partial(trellis_ref, rounded=path == PATH)
        oracle = cache(partial(of_path, weight, x))

        def check(y: np.ndarray, oracle=oracle) -> Deviation:
            return deviation(y, *oracle())

        yield Problem(f"{path} {label}", partial(multiply, packed, x, path), check, not_for)


def trellis_ref(weight: QTensor, x: np.ndarray, rounded: bool) -> tuple[np.ndarray, np.ndarray]:
    """y [M, N] and how far a kernel may be from it, float64

    The bound is that of other codes in the turned basis, of which 16 outputs meet in each; there are 4 sums, 3 products
    and a sum with the rest of rounded codes more. Rounded codes and their rest are summed apart.
    """
    scale = weight.parts["weight_scale"].astype(np.float64)
    values, rest = trellis_values(weight), 0.0
    if rounded:
        values, rest = 4.0 * (np.floor((values + 510) / 4) - 128), 3.5
    turned = turn_runs(x, turn_size(x.shape[1]))
    with np.errstate(invalid="ignore"):
        inputs = round_activations_ref(turned)
        y = turned_back(inputs @ ((values + rest) * scale).T)
        size = np.abs(inputs) @ ((np.abs(values) + rest) * scale).T
        bound = rounding_bound(turned, (np.abs(values) + rest) * scale) + 8 * 2.0**-24 * size
    return y, np.repeat(bound.reshape(len(x), -1, SIDE).sum(axis=2) / 4, SIDE, axis=1)


def trellis_bf16_ref(weight: QTensor, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same on the path bf16: rounded codes, which bfloat16 holds, with turned inputs in bfloat16."""
    scale, rest = weight.parts["weight_scale"].astype(np.float64), 3.5
    values = 4.0 * (np.floor((trellis_values(weight) + 510) / 4) - 128)
    turned = turn_runs(x, turn_size(x.shape[1]))
    inputs = round_to_bf16_ref(turned)
    with np.errstate(invalid="ignore"):
        sums = turned.astype(np.float64).sum(axis=1, keepdims=True)
        y = turned_back((inputs.astype(np.float64) @ values.T + rest * sums) * scale.T)
        size = (np.abs(inputs) @ np.abs(values).T + rest * np.abs(turned).sum(axis=1, keepdims=True)) * np.abs(scale.T)
        bound = (x.shape[1] + 8) * 2.0**-24 * size
    return y, np.repeat(bound.reshape(len(x), -1, SIDE).sum(axis=2) / 4, SIDE, axis=1)


def trellis_values(weight: QTensor) -> np.ndarray:
    """[N, K] float64, those of the code, in the turned basis"""
    fmt = TrellisFormat.parse(weight.format)
    assert fmt is not None
    return matrix_of(fmt.code.decode_ref(fmt.words_of(weight)), weight.shape).astype(np.float64)


def turned_back(y: np.ndarray) -> np.ndarray:
    """y [M, N] float64 of turned rows -> those of the weight's own rows"""
    matrix = turn_runs(np.eye(SIDE, dtype=np.float32), SIDE, back=True).astype(np.float64)
    return (y.reshape(len(y), -1, SIDE) @ matrix).reshape(y.shape)
