"""Linears on stored codes: y = x @ weight.T, x rounded to 8 bits in blocks of 32."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

import cpu_kernels
from cpu_kernels.linear import linear_ref, rounding_bound
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation
from quant.formats import dequantize, get_format
from quant.formats.grid import GridFormat
from quant.qtensor import QTensor

# M, N, K in blocks: panels are 16 rows wide, tiles 12 tokens high, direct products 4, stretches 512 long.
SHAPES = ((1, 1, 1), (3, 63, 3), (5, 17, 17), (13, 16, 2), (131, 131, 2))
SEED = 13
OP_PREFIX = "linear_"


def linears() -> list[Kernel]:
    ops = dict.fromkeys(row["op"] for row in cpu_kernels.op_table())
    names = [op.removeprefix(OP_PREFIX) for op in ops if op.startswith(OP_PREFIX)]
    packed = [name for name in names if cpu_kernels.has_packed_linear(name)]
    return [Kernel(OP_PREFIX + name, partial(problems, name)) for name in packed]


def problems(format_name: str) -> Iterator[Problem]:
    for num_tokens, num_rows, num_blocks in SHAPES:
        row_size = num_blocks * max(32, get_format(format_name).block_size)
        yield problem(format_name, num_tokens, num_rows, row_size)


def problem(format_name: str, num_tokens: int, num_rows: int, row_size: int) -> Problem:
    rng = np.random.default_rng((SEED, num_tokens, num_rows, row_size))
    qtensor = get_format(format_name).quantize(rng.standard_normal((num_rows, row_size)).astype(np.float32))
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    packed = cpu_kernels.PackedLinear(qtensor.format, qtensor.parts, qtensor.shape)

    def run(isa: str) -> tuple[np.ndarray, str]:
        out = np.full((num_tokens, num_rows), np.nan, np.float32)
        return packed.matmul(x, isa=isa, out=out), packed.last_isa

    @cache
    def oracle() -> tuple[np.ndarray, np.ndarray]:
        weight = dequantize(qtensor)
        return linear_ref(x, weight), rounding_bound(x, weight, minima(qtensor))

    def check(y: np.ndarray) -> Deviation:
        return deviation(y, *oracle())

    return Problem(f"M={num_tokens} N={num_rows} K={row_size}", run, check)


def minima(qtensor: QTensor) -> np.ndarray | None:
    """What code 0 stands for, [N, K]; None for formats where that is 0."""
    fmt = get_format(qtensor.format)
    if not isinstance(fmt, GridFormat):
        return None
    offset = fmt.read_grid(qtensor.parts["blocks"].reshape(-1, fmt.block_bytes)).offset
    return offset.reshape(qtensor.shape) if offset.any() else None
