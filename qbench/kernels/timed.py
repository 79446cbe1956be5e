"""All kernels as they are timed: which ops there are, and their benchmarks."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

import cpu_kernels
from qbench.kernels.attention import LATENT_FORMATS
from qbench.kernels.attention_benchmarks import ATTENTION, MASS, MASS_FORMATS, SCALES, attention_benchmarks
from qbench.kernels.benchmark import Benchmark
from qbench.kernels.codec_benchmarks import codec_benchmarks, timed_codecs
from qbench.kernels.gptq_benchmarks import STEPS, gptq_benchmark
from qbench.kernels.latent_benchmarks import LATENTS, latent_benchmarks
from qbench.kernels.linear import OP_PREFIX, packed_formats
from qbench.kernels.linear_benchmarks import ACT_ORDER, ANY_SHAPE, linear_benchmarks
from qbench.kernels.llm_int8_benchmarks import OP as LLM_INT8
from qbench.kernels.llm_int8_benchmarks import llm_int8_benchmarks
from qbench.kernels.moe_benchmarks import moe_benchmarks
from quant.formats import IntGroupFormat, get_format

EXPERTS = "moe_"  # before the format, in the names of ops
GROUPED = ("w4g128", "w4g128-asym", "w3g128", "w2g64", "w8")  # the integers of the named recipes
ORDERED = "w4g128" + ACT_ORDER


def timed_formats() -> list[str]:
    """Those with kernels, integers at the group sizes in use."""
    grouped = [name for name in GROUPED if cpu_kernels.has_packed_linear(name)]
    return [name for name in packed_formats() if not isinstance(get_format(name), IntGroupFormat)] + grouped


def timed_ops() -> list[str]:
    """Names of the ops that `benchmarks` may give."""
    of_formats = [prefix + name for name in timed_formats() for prefix in (OP_PREFIX, EXPERTS)]
    attention = [*(ATTENTION + name for name in SCALES), *(MASS + name for name in MASS_FORMATS)]
    latents = [LATENTS + name for name in LATENT_FORMATS]
    return [*of_formats, OP_PREFIX + ORDERED, LLM_INT8, *attention, *latents, *timed_codecs(), *STEPS]


def benchmarks(
    only: str | Sequence[str], tokens: tuple[int, ...], threads: int, shapes: Sequence[str] = ANY_SHAPE
) -> Iterator[Benchmark]:
    """Those of the ops and shapes that are asked for; each is made when its turn comes.

    only     part of their names; or several patterns of whole names, as fnmatch reads them
    shapes   patterns likewise
    """

    def is_asked(op: str) -> bool:
        return only in op if isinstance(only, str) else any(fnmatchcase(op, pattern) for pattern in only)

    for found in _of_ops(is_asked, tokens, threads, shapes):
        if any(fnmatchcase(found.shape, pattern) for pattern in shapes):
            yield found


def _of_ops(
    is_asked: Callable[[str], bool], tokens: tuple[int, ...], threads: int, shapes: Sequence[str]
) -> Iterator[Benchmark]:
    """`shapes` avoids making costly inputs for other shapes; other shapes may still come."""
    for name in timed_formats():
        if is_asked(OP_PREFIX + name):
            yield from linear_benchmarks(name, tokens, threads, shapes)
        if is_asked(EXPERTS + name):
            yield from moe_benchmarks(name, tokens, threads, shapes)
    if is_asked(OP_PREFIX + ORDERED):
        yield from linear_benchmarks(ORDERED, tokens, threads, shapes)
    if is_asked(LLM_INT8):
        yield from llm_int8_benchmarks(tokens, shapes)
    for name in SCALES:
        if is_asked(ATTENTION + name):
            yield from attention_benchmarks(name, tokens, threads)
        if name in MASS_FORMATS and is_asked(MASS + name):
            yield from attention_benchmarks(name, tokens, threads, with_mass=True)
    for name in LATENT_FORMATS:
        if is_asked(LATENTS + name):
            yield from latent_benchmarks(name, tokens)
    for op in timed_codecs():
        if is_asked(op):
            yield from codec_benchmarks(op, threads)
    for op in STEPS:
        if is_asked(op):
            yield gptq_benchmark(op)
