"""All kernels as they are checked and as they are timed, and the ops that have no result to check."""

from collections.abc import Iterator
from functools import cache

from qbench.kernels.attention import attention
from qbench.kernels.benchmark import Benchmark
from qbench.kernels.case import Kernel
from qbench.kernels.decode import decoders
from qbench.kernels.encode import encoders
from qbench.kernels.fused import fused_rows
from qbench.kernels.gptq import gptq
from qbench.kernels.gram import gram
from qbench.kernels.linear import OP_PREFIX, linears, packed_formats
from qbench.kernels.linear_benchmarks import linear_benchmarks
from qbench.kernels.linear_dense import dense_linears

# They measure the machine: what comes out is a rate, and no oracle knows it.
MEASUREMENTS = frozenset({"read_bandwidth", "int8_peak", "fp32_peak"})


@cache
def kernels() -> tuple[Kernel, ...]:
    return (*linears(), *dense_linears(), *encoders(), *decoders(), *fused_rows(), *gptq(), *attention(), *gram())


def benchmarks(only: str, tokens: tuple[int, ...], threads: int) -> Iterator[Benchmark]:
    """Those of the ops that have `only` in their name; each is made when its turn comes."""
    for name in packed_formats():
        if only in OP_PREFIX + name:
            yield from linear_benchmarks(name, tokens, threads)
