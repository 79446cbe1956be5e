"""Linears at the shapes of real models, next to llama.cpp and torch on the same weights."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from math import ceil

import numpy as np

import cpu_kernels
from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation, random_weight
from qbench.kernels.linear import OP_PREFIX
from qbench.kernels.peers.ggml import GgmlLinears
from qbench.kernels.peers.openvino import OpenVinoLinears
from qbench.speed.operands import operands_of_linear
from quant.formats import IntGroupFormat, dequantize, get_format
from quant.present import present
from quant.qtensor import QTensor

# N x K: attention, up and down of a 1B Llama; up of an 8B one.
SHAPES = ((2048, 2048), (8192, 2048), (2048, 8192), (14336, 4096))
# How many tokens' worth of arithmetic hides the reading of a weight on any machine known here (2-core VM: 0.9 TOPS and
# 36 GB/s meet at 13 tokens for 8-bit weights): from here on, the contents of caches do not matter.
COMPUTE_BOUND_TOKENS = 64
COLD_BYTES = 96 << 20  # of different weights, three times a last-level cache of 32 MB
WARM_BYTES = 8 << 20  # more than the inner caches of a core hold
DISTINCT_ROWS = 128  # of a weight; the rest repeats them, which no kernel can notice
CHECKED_TOKENS = 4
ANY_SHAPE = ("*",)  # patterns, as fnmatch reads them
SEED = 14
# After a format's name: its groups are features in an order of their own, as GPTQ's act_order leaves them.
ACT_ORDER = "-act"

# OpenVINO reads symmetric codes as they are stored, and multiplies floats in the processor's fastest type.
OPENVINO_FORMATS = ("w4g128", "w8", "w8a8", "bf16", "f16")


class Weight:
    """One weight in one format, as each contender wants it, and x for calls of up to so many tokens."""

    def __init__(self, format_name: str, num_rows: int, row_size: int, most_tokens: int) -> None:
        rng = np.random.default_rng((SEED, row_size))
        self.format = get_format(format_name.removesuffix(ACT_ORDER))
        some = random_weight(self.format, (min(num_rows, DISTINCT_ROWS), row_size), rng)
        self.qtensor = some.take_rows(np.arange(num_rows) % len(next(iter(some.parts.values()))))
        if format_name.endswith(ACT_ORDER):
            assert isinstance(self.format, IntGroupFormat)
            groups = np.arange(row_size, dtype=np.int32) // present(self.format.group_size)
            self.qtensor = replace(self.qtensor, shared={"g_idx": rng.permutation(groups)})
        self.x = rng.standard_normal((most_tokens, row_size)).astype(np.float32)

    def tokens(self, num_tokens: int) -> np.ndarray:
        assert num_tokens <= len(self.x), f"{num_tokens} tokens of {len(self.x)}"
        return self.x[:num_tokens]

    @cached_property
    def dense(self) -> np.ndarray:
        return dequantize(self.qtensor)

    def copies(self, packed_bytes: int, num_tokens: int) -> int:
        wanted = COLD_BYTES if num_tokens < COMPUTE_BOUND_TOKENS else WARM_BYTES
        return max(1, ceil(wanted / packed_bytes))

    def check(self, num_tokens: int, y: np.ndarray) -> Deviation:
        """The first tokens against float64, loosely: the self-test checks exactly, this check only excludes another
        product.

        A contender may round x to 8 bits with one scale per token, of steps absmax / 127: K independent errors, each of
        deviation step / sqrt(12), that a row of the weight sums to |row| * step / sqrt(12); six of those. bfloat16 is
        finer than that step for all but the largest of a token.
        """
        x = self.x[: min(num_tokens, CHECKED_TOKENS)].astype(np.float64)
        rows = self.dense[:DISTINCT_ROWS].astype(np.float64)
        step = np.abs(x).max(axis=1, keepdims=True) / 127
        bound = 6 * step / 12**0.5 * np.linalg.norm(rows, axis=1)
        return deviation(y[: len(x), : len(rows)], x @ rows.T, bound)


class OurLinears:
    """cpu_kernels' product, by whichever implementation its dispatch chooses."""

    def __init__(self, qtensor: QTensor, x: np.ndarray, copies: int) -> None:
        parts = qtensor.parts | qtensor.shared
        self.x = x
        self.weights = [cpu_kernels.PackedLinear(qtensor.format, parts, qtensor.shape) for _ in range(copies)]
        self.y = np.full((len(x), qtensor.shape[0]), np.nan, np.float32)
        self.how = " ".join(self.weights[0].choice(len(x)))

    def run(self) -> None:
        for weight in self.weights:
            weight.matmul(self.x, out=self.y)

    def output(self) -> np.ndarray:
        return self.y


def asked_shapes(patterns: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(N, K, "NxK") of SHAPES"""
    for num_rows, row_size in SHAPES:
        shape = f"{num_rows}x{row_size}"
        if any(fnmatchcase(shape, pattern) for pattern in patterns):
            yield num_rows, row_size, shape


def linear_benchmarks(
    format_name: str, tokens: tuple[int, ...], threads: int, shapes: Sequence[str] = ANY_SHAPE
) -> Iterator[Benchmark]:
    """By shape, then by tokens, so that few weights are held at a time."""
    fmt = get_format(format_name.removesuffix(ACT_ORDER))
    for num_rows, row_size, shape in asked_shapes(shapes):
        if not fmt.holds_row(row_size):
            continue
        weight = Weight(format_name, num_rows, row_size, max(tokens))
        packed_bytes = cpu_kernels.packed_linear_bytes(fmt.name, (num_rows, row_size))
        for num_tokens in tokens:
            copies = weight.copies(packed_bytes, num_tokens)
            yield Benchmark(
                op=OP_PREFIX + format_name,
                shape=shape,
                tokens=num_tokens,
                contenders=contenders(weight, num_tokens, copies, threads),
                calls=copies,
                moved_bytes=packed_bytes + 4 * num_tokens * (row_size + num_rows),
                operations=2 * num_tokens * num_rows * row_size,
                arithmetic=operands_of_linear(fmt.name),
                check=partial(weight.check, num_tokens),
            )


def contenders(weight: Weight, num_tokens: int, copies: int, threads: int) -> dict[str, Callable[[], Contender]]:
    """Ours, and those whose libraries multiply with this format's bytes or in its arithmetic."""
    x, fmt = weight.tokens(num_tokens), weight.format
    found: dict[str, Callable[[], Contender]] = {OURS: lambda: OurLinears(weight.qtensor, x, copies)}
    if fmt.gguf_type is not None:
        found["llama.cpp"] = lambda: ggml_linears(weight, x, copies, threads)
    if fmt.name.startswith("w8a8"):
        found["torch-int8"] = lambda: torch_int8("TorchInt8Linears", weight, x, copies)
        found["onednn-int8"] = lambda: torch_int8("OneDnnInt8Linears", weight, x, copies)
    if isinstance(fmt, IntGroupFormat) and fmt.bits == 4 and fmt.group_size and not weight.qtensor.shared:
        found["torch-int4"] = lambda: torch_int4(weight, x, copies)
    if fmt.name in OPENVINO_FORMATS and not weight.qtensor.shared:
        found["openvino"] = lambda: openvino(weight, x, copies, threads)
    dtype = {"f32": "float32"}.get(fmt.name, "bfloat16")
    found[f"torch-{dtype}"] = lambda: torch_float(weight, dtype, x, copies)
    return found


def ggml_linears(weight: Weight, x: np.ndarray, copies: int, threads: int) -> Contender:
    return GgmlLinears(present(weight.format.gguf_type), weight.qtensor.parts["blocks"], x, copies, threads)


def torch_float(weight: Weight, dtype: str, x: np.ndarray, copies: int) -> Contender:
    import torch

    from qbench.kernels.peers.torch import TorchLinears

    return TorchLinears(getattr(torch, dtype), weight.dense, x, copies)


def torch_int8(kind: str, weight: Weight, x: np.ndarray, copies: int) -> Contender:
    from qbench.kernels.peers import torch

    return getattr(torch, kind)(weight.qtensor.parts["weight"], weight.qtensor.parts["weight_scale"], x, copies)


def torch_int4(weight: Weight, x: np.ndarray, copies: int) -> Contender:
    from qbench.kernels.peers.torch import TorchInt4Linears

    fmt = weight.format
    assert isinstance(fmt, IntGroupFormat)
    q, scale, zero_point, _ = fmt.unpack(weight.qtensor)
    return TorchInt4Linears(q, scale, zero_point, present(fmt.group_size), x, copies)


def openvino(weight: Weight, x: np.ndarray, copies: int, threads: int) -> Contender:
    fmt = weight.format
    if isinstance(fmt, IntGroupFormat):
        q, scale, _, _ = fmt.unpack(weight.qtensor)
        return OpenVinoLinears(q, scale, fmt.bits, x, copies, threads)
    if fmt.name == "w8a8":
        parts = weight.qtensor.parts
        return OpenVinoLinears(parts["weight"], parts["weight_scale"], 8, x, copies, threads)
    return OpenVinoLinears(weight.dense, None, 32, x, copies, threads)
