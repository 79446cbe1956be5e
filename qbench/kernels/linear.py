"""Linears on stored codes: y = x @ weight.T, x rounded to 8 bits in blocks of 32."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

import cpu_kernels
from cpu_kernels.linear import linear_ref, rounding_bound
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation
from quant.formats import IntGroupFormat, dequantize, get_format
from quant.formats.grid import GridFormat
from quant.qtensor import QTensor

# M, N, K in blocks: panels are 16 rows wide, tiles 12 tokens high, direct products 4, stretches 512 long.
SHAPES = ((1, 1, 1), (3, 63, 3), (5, 17, 17), (13, 16, 2), (131, 131, 2))
PATHS = ("direct", "tile")
SEED = 13
OP_PREFIX = "linear_"


def linears() -> list[Kernel]:
    """Of blocks and groups: their activations are made of ActivationBlocks."""
    return [
        Kernel(OP_PREFIX + name, partial(problems, name))
        for name in packed_formats()
        if isinstance(get_format(name), IntGroupFormat) or get_format(name).block_size > 1
    ]


def packed_formats() -> list[str]:
    """The formats whose ops the table of implementations has."""
    ops = dict.fromkeys(row["op"] for row in cpu_kernels.op_table())
    names = [op.removeprefix(OP_PREFIX) for op in ops if op.startswith(OP_PREFIX)]
    return [name for name in names if cpu_kernels.has_packed_linear(name)]


def problems(format_name: str) -> Iterator[Problem]:
    """Each path on ragged shapes; then tokens with NaN and with infinity among others."""
    for num_tokens, num_rows, num_blocks in SHAPES:
        row_size = num_blocks * max(32, get_format(format_name).block_size)
        rng = np.random.default_rng((SEED, num_tokens, num_rows, row_size))
        qtensor = get_format(format_name).quantize(rng.standard_normal((num_rows, row_size)).astype(np.float32))
        x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
        yield from of_paths(qtensor, x, f"M={num_tokens} N={num_rows} K={row_size}")
    x = x[:15].copy()
    x[2, 17], x[13, 0] = np.nan, -np.inf
    yield from of_paths(qtensor, x, f"NaN and infinity N={num_rows} K={row_size}")


def of_paths(qtensor: QTensor, x: np.ndarray, label: str) -> Iterator[Problem]:
    packed = cpu_kernels.PackedLinear(qtensor.format, qtensor.parts | qtensor.shared, qtensor.shape)

    @cache
    def oracle() -> tuple[np.ndarray, np.ndarray]:
        weight = dequantize(qtensor)
        return linear_ref(x, weight), rounding_bound(x, weight, minima(qtensor))

    def check(y: np.ndarray) -> Deviation:
        return deviation(y, *oracle())

    for path in PATHS:
        yield Problem(f"{path} {label}", partial(multiply, packed, x, path), check)


def multiply(packed: cpu_kernels.PackedLinear, x: np.ndarray, path: str, isa: str) -> tuple[np.ndarray, str]:
    out = np.full((len(x), packed.shape[0]), np.nan, np.float32)
    return packed.matmul(x, isa=isa, path=path, out=out), packed.last_isa


def minima(qtensor: QTensor) -> np.ndarray | None:
    """What code 0 stands for, [N, K]; None for formats where that is 0."""
    fmt = get_format(qtensor.format)
    if not isinstance(fmt, GridFormat):
        return None
    offset = fmt.read_grid(qtensor.parts["blocks"].reshape(-1, fmt.block_bytes)).offset
    return offset.reshape(qtensor.shape) if offset.any() else None
