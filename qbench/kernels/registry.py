"""All kernels as they are checked and as they are timed, and the ops that have no result to check."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache

import cpu_kernels
from qbench.kernels.attention import attention
from qbench.kernels.attention_benchmarks import SCALES, attention_benchmarks
from qbench.kernels.benchmark import Benchmark
from qbench.kernels.case import Kernel
from qbench.kernels.codec_benchmarks import codec_benchmarks, timed_codecs
from qbench.kernels.decode import decoders
from qbench.kernels.encode import encoders
from qbench.kernels.fused import fused_rows
from qbench.kernels.fused_steps import fused_steps
from qbench.kernels.gptq import gptq
from qbench.kernels.gptq_benchmarks import STEPS, gptq_benchmark
from qbench.kernels.gram import gram
from qbench.kernels.integers import integers
from qbench.kernels.latent_heads import latent_heads
from qbench.kernels.linear import OP_PREFIX, linears, packed_formats
from qbench.kernels.linear_benchmarks import ACT_ORDER, linear_benchmarks
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
    latent_heads,
    fused_rows,
    fused_steps,
    encoders,
    decoders,
    integers,
    gptq,
    gram,
)
# They measure the machine: what comes out is a rate, and no oracle knows it.
MEASUREMENTS = frozenset({"read_bandwidth", "int8_peak", "int16_peak", "bf16_peak", "fp32_peak"})
EXPERTS, ATTENTION = "moe_", "attention_"  # before the format, in the names of ops
GROUPED = ("w4g128", "w4g128-asym", "w3g128", "w2g64", "w8")  # the integers of the named recipes
ORDERED = "w4g128" + ACT_ORDER


@cache
def kernels() -> tuple[Kernel, ...]:
    return tuple(kernel for family in FAMILIES for kernel in family())


def timed_formats() -> list[str]:
    """Those with kernels, integers at the group sizes in use."""
    grouped = [name for name in GROUPED if cpu_kernels.has_packed_linear(name)]
    return [name for name in packed_formats() if not isinstance(get_format(name), IntGroupFormat)] + grouped


def timed_ops() -> list[str]:
    """Names of the ops that `benchmarks` may give."""
    of_formats = [prefix + name for name in timed_formats() for prefix in (OP_PREFIX, EXPERTS)]
    return [*of_formats, OP_PREFIX + ORDERED, LLM_INT8, *(ATTENTION + name for name in SCALES), *timed_codecs(), *STEPS]


def benchmarks(only: str | Sequence[str], tokens: tuple[int, ...], threads: int) -> Iterator[Benchmark]:
    """Those of the ops that are asked for; each is made when its turn comes.

    only   what their names contain; or several patterns of whole names, as fnmatch reads them
    """

    def is_asked(op: str) -> bool:
        return only in op if isinstance(only, str) else any(fnmatchcase(op, pattern) for pattern in only)

    for name in timed_formats():
        if is_asked(OP_PREFIX + name):
            yield from linear_benchmarks(name, tokens, threads)
        if is_asked(EXPERTS + name):
            yield from moe_benchmarks(name, tokens, threads)
    if is_asked(OP_PREFIX + ORDERED):
        yield from linear_benchmarks(ORDERED, tokens, threads)
    if is_asked(LLM_INT8):
        yield from llm_int8_benchmarks(tokens)
    for name in SCALES:
        if is_asked(ATTENTION + name):
            yield from attention_benchmarks(name, tokens, threads)
    for op in timed_codecs():
        if is_asked(op):
            yield from codec_benchmarks(op, threads)
    for op in STEPS:
        if is_asked(op):
            yield gptq_benchmark(op)
