"""Attention at the shapes of real models: decode far into a text, and prefill."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil

import numpy as np

import cpu_kernels
from qbench.kernels.attention import FORMATS, INTEGER_FORMATS, RESIDUAL_FORMATS
from qbench.kernels.benchmark import OURS, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation
from qbench.kernels.linear_benchmarks import COLD_BYTES, COMPUTE_BOUND_TOKENS
from qbench.kernels.peers.ggml import GgmlAttention
from qbench.speed.operands import operands_of_attention
from quant.kv import KV_FORMATS

SCALES = FORMATS | INTEGER_FORMATS | dict.fromkeys(RESIDUAL_FORMATS, "given")
# The largest error of values over the largest value, 4: the rounding of float8; half of one of the 3 steps from -4 to 4
ROUNDING, ROUNDINGS = 2.0**-3, {"kivi2": 1 / 3}
SHAPES = ((32, 8, 64), (32, 8, 128))  # query heads, kv heads, head_dim: a 1B and an 8B Llama
DEPTH = 4096  # tokens that a decoded token sees
# Format of a store, except float32 -> a KV format that is kept so
KV_FORMAT_OF = {"e4m3": "kv-fp8", "e5m2": "kv-fp8-e5m2"} | RESIDUAL_FORMATS
KV_FORMAT_OF |= {name: f"kv-{name}" for name in ("f16", "bf16", "int8", "int4")}
# llama.cpp's KV formats with as many bits.
GGML_KV = {"f16": "f16", "int8": "q8_0", "int4": "q4_0"}
# q over the key that it is made of: that key's score is 4 * |k|**2 / sqrt(D), about 32, and others' deviate by 4, which
# among 4096 sum to less than e**17: its weight is then 1 for all that is compared.
SHARPNESS = 4.0
ATTENTION, MASS = "attention_", "mass_"  # before the format, in the names of ops
MASS_FORMATS = tuple(name for name in SCALES if name not in RESIDUAL_FORMATS)
ALONE, OBSERVED = "without-mass", 64  # queries: the window of snapkv
PANEL_TOKENS = 16  # keys are packed so many side by side, and a page holds whole panels
CHECKED_QUERIES = 16
SEED = 32


class Attention:
    """Queries of which each looks for one token, its own in prefill and one in the middle of the text in decode."""

    def __init__(self, shape: tuple[int, int, int], num_queries: int, num_tokens: int, rounding: float) -> None:
        self.rounding = rounding
        num_heads, num_kv_heads, head_dim = shape
        rng = np.random.default_rng((SEED, num_tokens))
        self.k, self.v = rng.standard_normal((2, num_kv_heads, num_tokens, head_dim)).astype(np.float32)
        sought = np.arange(num_tokens) if num_queries > 1 else np.array([num_tokens // 2])
        kv_head = np.arange(num_heads) // (num_heads // num_kv_heads)
        self.q = (SHARPNESS * self.k[kv_head][:, sought]).astype(np.float32)  # [H, T, D]
        self.expected = self.v[kv_head][:, sought]
        self.softmax_scale = head_dim**-0.5

    def check(self, out: np.ndarray) -> Deviation:
        """Each query's value is the one of the token that it looks for, within the format's rounding of the largest
        values, of 4. Other values are off by several deviations of 1; to be exact is for the self-test.
        """
        last = slice(-CHECKED_QUERIES, None)  # those that see the most
        return deviation(out[:, last], self.expected[:, last], self.rounding * 4)


def store_of(name: str, num_kv_heads: int, num_tokens: int, head_dim: int) -> cpu_kernels.KVStore:
    """One page of these tokens, and of empty ones up to a whole panel."""
    page_size = ceil(num_tokens / PANEL_TOKENS) * PANEL_TOKENS
    return cpu_kernels.KVStore(name, 1, page_size, num_kv_heads, head_dim, SCALES[name])


class OurAttention:
    """KVStore, one page per call, as the runtime's cache without pages has it.

    A prefill over a format with a residual appends the tokens, too, as a query sees other tokens encoded than the next.
    """

    def __init__(self, name: str, inputs: Attention, copies: int, observed: int | None = None) -> None:
        """observed   number of the last queries whose weights are summed for each key; None: weights are not wanted"""
        self.q, self.k, self.v = inputs.q[None], inputs.k[None], inputs.v[None]
        self.softmax_scale, self.appends = inputs.softmax_scale, name in RESIDUAL_FORMATS and inputs.q.shape[1] > 1
        self.table, self.ends = np.zeros((1, 1), np.int32), np.array([inputs.k.shape[1]])
        self.stores = [store_of(name, *inputs.k.shape) for _ in range(copies)]
        for store in self.stores:
            store.append(self.k, self.v, self.table, self.ends)
        self.out, self.turned = np.full_like(self.q, np.nan), np.empty_like(self.q)
        self.how = cpu_kernels.chosen_isa("attention")
        self.mass = None if observed is None else np.full((1, *inputs.k.shape[:2]), np.nan, np.float32)
        self.weighed = {} if observed is None else {"mass": self.mass, "mass_queries": observed}

    def run(self) -> None:
        for store in self.stores:
            if self.appends:
                given = (self.q, self.k, self.v, None, None, self.table, self.ends)
                store.append_attend(*given, self.turned, self.out, self.softmax_scale)
            else:
                store.attend(self.q, self.table, self.ends, self.out, self.softmax_scale, **self.weighed)

    def output(self) -> np.ndarray:
        return self.out[0]


def attention_benchmarks(
    name: str, tokens: tuple[int, ...], threads: int, *, with_mass: bool = False
) -> Iterator[Benchmark]:
    """Decode of one token at DEPTH, and prefill of as many tokens as hide the reading of keys and values.

    with_mass   whether to sum the weights that each key receives, and to compare this with attention alone: the cost of
                a policy that reads them. In decode they are those of the token, in prefill of the last OBSERVED ones
    """
    for shape in SHAPES:
        for num_queries in (count for count in tokens if count == 1 or count >= COMPUTE_BOUND_TOKENS):
            yield of_queries(name, shape, num_queries, threads, with_mass=with_mass)


def of_queries(
    name: str, shape: tuple[int, int, int], num_queries: int, threads: int, *, with_mass: bool = False
) -> Benchmark:
    num_heads, num_kv_heads, head_dim = shape
    num_tokens = DEPTH if num_queries == 1 else num_queries
    inputs = Attention(shape, num_queries, num_tokens, ROUNDINGS.get(name, ROUNDING))
    stored = store_of(name, num_kv_heads, num_tokens, head_dim).nbytes
    copies = ceil(COLD_BYTES / stored) if num_queries == 1 else 1
    pairs = num_tokens if num_queries == 1 else num_queries * (num_queries + 1) // 2
    return Benchmark(
        op=f"{MASS if with_mass else ATTENTION}{name}",
        shape=f"{num_heads}/{num_kv_heads}x{head_dim}@{num_tokens - num_queries + (num_queries == 1)}",
        tokens=num_queries,
        contenders=mass_contenders(name, inputs, copies) if with_mass else contenders(name, inputs, copies, threads),
        calls=copies,
        moved_bytes=stored + 2 * inputs.q.nbytes,
        operations=4 * num_heads * head_dim * pairs,
        arithmetic=operands_of_store(name),
        check=inputs.check,
    )


def operands_of_store(name: str) -> str:
    return operands_of_attention(None if name == "f32" else KV_FORMATS[KV_FORMAT_OF[name]])


def mass_contenders(name: str, inputs: Attention, copies: int) -> dict[str, Callable[[], Contender]]:
    observed = min(OBSERVED, inputs.q.shape[1])
    return {
        OURS: lambda: OurAttention(name, inputs, copies, observed),
        ALONE: lambda: OurAttention(name, inputs, copies),
    }


def contenders(name: str, inputs: Attention, copies: int, threads: int) -> dict[str, Callable[[], Contender]]:
    found: dict[str, Callable[[], Contender]] = {OURS: lambda: OurAttention(name, inputs, copies)}
    if name in GGML_KV:
        found["llama.cpp"] = lambda: ggml_attention(GGML_KV[name], inputs, copies, threads)
    for dtype in ("float32", "bfloat16"):
        found[f"torch-{dtype}"] = partial(torch_attention, dtype, inputs, copies)
    return found


def ggml_attention(kv: str, inputs: Attention, copies: int, threads: int) -> Contender:
    return GgmlAttention(kv, inputs.q, inputs.k, inputs.v, inputs.softmax_scale, copies, threads)


def torch_attention(dtype: str, inputs: Attention, copies: int) -> Contender:
    import torch

    from qbench.kernels.peers.torch import TorchAttention

    return TorchAttention(getattr(torch, dtype), inputs.q, inputs.k, inputs.v, inputs.softmax_scale, copies)
