"""All kernels as they are checked and as they are timed, and the ops that have no result to check."""

from collections.abc import Iterator
from functools import cache

import cpu_kernels
from qbench.kernels.attention import attention
from qbench.kernels.attention_benchmarks import SCALES, attention_benchmarks
from qbench.kernels.benchmark import Benchmark
from qbench.kernels.case import Kernel
from qbench.kernels.decode import decoders
from qbench.kernels.encode import encoders
from qbench.kernels.fused import fused_rows
from qbench.kernels.fused_steps import fused_steps
from qbench.kernels.gptq import gptq
from qbench.kernels.gram import gram
from qbench.kernels.integers import integers
from qbench.kernels.linear import OP_PREFIX, linears, packed_formats
from qbench.kernels.linear_benchmarks import linear_benchmarks
from qbench.kernels.linear_dense import dense_linears
from qbench.kernels.llm_int8_benchmarks import OP as LLM_INT8
from qbench.kernels.llm_int8_benchmarks import llm_int8_benchmarks
from qbench.kernels.moe import experts
from qbench.kernels.moe_benchmarks import moe_benchmarks
from quant.formats import IntGroupFormat, get_format

# What gives the kernels to check, a family a line.
FAMILIES = (
    linears,
    dense_linears,
    experts,
    attention,
    fused_rows,
    fused_steps,
    encoders,
    decoders,
    integers,
    gptq,
    gram,
)
# They measure the machine: what comes out is a rate, and no oracle knows it.
MEASUREMENTS = frozenset({"read_bandwidth", "int8_peak", "fp32_peak"})
GROUPED = ("w4g128", "w4g128-asym", "w3g128", "w2g64", "w8")  # the integers of the named recipes


@cache
def kernels() -> tuple[Kernel, ...]:
    return tuple(kernel for family in FAMILIES for kernel in family())


def timed_formats() -> list[str]:
    """Those with kernels, integers at the group sizes in use."""
    grouped = [name for name in GROUPED if cpu_kernels.has_packed_linear(name)]
    return [name for name in packed_formats() if not isinstance(get_format(name), IntGroupFormat)] + grouped


def benchmarks(only: str, tokens: tuple[int, ...], threads: int) -> Iterator[Benchmark]:
    """Those of the ops that have `only` in their name; each is made when its turn comes."""
    for name in timed_formats():
        if only in OP_PREFIX + name:
            yield from linear_benchmarks(name, tokens, threads)
        if only in f"moe_{name}":
            yield from moe_benchmarks(name, tokens)
    if only in LLM_INT8:
        yield from llm_int8_benchmarks(tokens)
    for name in SCALES:
        if only in f"attention_{name}":
            yield from attention_benchmarks(name, tokens, threads)
