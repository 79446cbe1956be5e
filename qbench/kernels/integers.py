"""Integers in groups and int8 rows, quantized and read: the bits are those of the NumPy codecs."""

from collections.abc import Iterator
from functools import cache

import numpy as np

from cpu_kernels import _ext  # whose functions say what ran, as those of cpu_kernels.integers do not
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from quant.formats import Int8Format, IntGroupFormat

SHAPES = ((1, 1), (3, 37), (131, 74))  # N, K
BITS = (2, 3, 4, 8)
GROUP_SIZES = (None, 37)
SEED = 19


def integers() -> list[Kernel]:
    return [Kernel("integers", problems)]


def problems() -> Iterator[Problem]:
    for shape in SHAPES:
        weight = hard_rows(*shape)
        for per_tensor in (False, True):
            yield rows_problem(Int8Format(per_tensor), weight)
        for bits in BITS:
            for group_size in (size for size in GROUP_SIZES if shape[1] % (size or 1) == 0):
                for symmetric in (True, False):
                    yield groups_problem(IntGroupFormat(bits, group_size, symmetric), weight)


def hard_rows(num_rows: int, row_size: int) -> np.ndarray:
    """Usual rows, ties, rows of one sign, zeros, and magnitudes that float16 scales do not hold."""
    rng = np.random.default_rng((SEED, num_rows, row_size))
    weight = rng.standard_normal((num_rows, row_size))
    weight[1::5] = rng.integers(-9, 9, weight[1::5].shape) / 2
    weight[2::5] = np.abs(weight[2::5]) + 0.3
    weight[3::10] = 0
    weight[4::5] *= 10.0 ** rng.integers(-44, 39, weight[4::5].shape)
    return np.clip(weight, -3e38, 3e38).astype(np.float32)


def all_of(*ran: str) -> str:
    """What ran, once where it is the same."""
    return ", ".join(dict.fromkeys(ran))


def in_one(*arrays: np.ndarray | None) -> np.ndarray:
    """The values of all in one row, so that one comparison sees them."""
    return np.concatenate([array.astype(np.float64).ravel() for array in arrays if array is not None])


def groups_problem(fmt: IntGroupFormat, weight: np.ndarray) -> Problem:
    num_rows, row_size = weight.shape

    def run(isa: str) -> tuple[np.ndarray, str]:
        *parts, writer = _ext.quantize_groups(weight, fmt.bits, fmt.group_size or row_size, fmt.symmetric, isa)
        values, reader = _ext.dequantize_groups(*parts, None, fmt.bits, row_size, isa)
        return in_one(*parts, values), all_of(writer, reader)

    @cache
    def oracle() -> np.ndarray:
        qtensor = fmt.quantize_ref(weight)
        return in_one(*qtensor.parts.values(), fmt.dequantize_ref(qtensor))

    return Problem(f"{fmt.name} N={num_rows} K={row_size}", run, lambda got: deviation(got, oracle(), 0.0))


def rows_problem(fmt: Int8Format, weight: np.ndarray) -> Problem:
    num_rows, row_size = weight.shape

    def run(isa: str) -> tuple[np.ndarray, str]:
        q, scale, writer = _ext.quantize_rows(weight, fmt.per_tensor_weight, isa)
        values, reader = _ext.dequantize_rows(q, scale, isa)
        return in_one(q, scale, values), all_of(writer, reader)

    @cache
    def oracle() -> np.ndarray:
        qtensor = fmt.quantize_ref(weight)
        return in_one(*qtensor.parts.values(), fmt.dequantize_ref(qtensor))

    return Problem(f"{fmt.name} N={num_rows} K={row_size}", run, lambda got: deviation(got, oracle(), 0.0))
