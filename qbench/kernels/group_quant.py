"""Integers in groups and int8 rows, quantized and read: the bits are those of the NumPy codecs."""

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

# Its functions return the instruction set that ran; those of cpu_kernels.group_quant do not.
from cpu_kernels import _ext  # pyright: ignore[reportAttributeAccessIssue]  # compiled, without type stubs
from qbench.kernels.case import Kernel, Problem, deviation
from quant.formats import Int8Format, IntGroupFormat, LlmInt8Format
from quant.present import present
from quant.qtensor import QTensor

SHAPES = ((1, 1), (3, 37), (131, 74))  # N, K
BITS = (2, 3, 4, 8)
GROUP_SIZES = (None, 37)
LARGEST_HALF = np.float32(65504)
SEED = 19


def group_quant() -> list[Kernel]:
    return [Kernel("group_quant", problems)]


def problems() -> Iterator[Problem]:
    weights = [hard_rows(*shape) for shape in SHAPES]
    for weight in weights:
        for per_tensor in (False, True):
            yield rows_problem(Int8Format(per_tensor), weight)
        for bits in BITS:
            for group_size in (size for size in GROUP_SIZES if weight.shape[1] % (size or 1) == 0):
                for symmetric in (True, False):
                    yield groups_problem(IntGroupFormat(bits, group_size, symmetric), weight)
        yield llm_int8_problem(np.clip(weight, -LARGEST_HALF, LARGEST_HALF))
    for bits, symmetric in product(BITS, (True, False)):
        yield ordered_problem(IntGroupFormat(bits, GROUP_SIZES[1], symmetric), weights[-1])


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
    """Names of the code that ran, each once."""
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


def ordered_problem(fmt: IntGroupFormat, weight: np.ndarray) -> Problem:
    """Read in an order of groups that is not that of the features, as GPTQ leaves them."""
    num_rows, row_size = weight.shape
    group_of = np.random.default_rng(SEED).permutation(np.arange(row_size, dtype=np.int32) // present(fmt.group_size))
    qtensor = fmt.quantize_ref(weight)
    ordered = QTensor(qtensor.format, qtensor.shape, qtensor.parts, {"g_idx": group_of})
    packed, scale, *zero_point = qtensor.parts.values()

    def run(isa: str) -> tuple[np.ndarray, str]:
        parts = packed, scale, zero_point[0] if zero_point else None
        return _ext.dequantize_groups(*parts, group_of, fmt.bits, row_size, isa)

    label = f"{fmt.name} in act-order N={num_rows} K={row_size}"
    return Problem(label, run, lambda got: deviation(got, fmt.dequantize_ref(ordered), 0.0))


def llm_int8_problem(weight: np.ndarray) -> Problem:
    def run(isa: str) -> tuple[np.ndarray, str]:
        *parts, ran = _ext.quantize_llm_int8(weight, isa)
        return in_one(*parts), ran

    @cache
    def oracle() -> np.ndarray:
        parts = LlmInt8Format().quantize_ref(weight).parts
        return in_one(parts["weight"], parts["SCB"])

    label = f"llm-int8 N={len(weight)} K={weight.shape[1]}"
    return Problem(label, run, lambda got: deviation(got, oracle(), 0.0))


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
