"""A layer of experts at the shapes of real models, routed evenly, next to the backends of kt-kernel of as many bits."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import ceil

import numpy as np

import cpu_kernels
from qbench.kernels.benchmark import OURS, Absent, Benchmark, Contender
from qbench.kernels.case import Deviation, deviation, random_weight
from qbench.kernels.linear_benchmarks import ANY_SHAPE, COLD_BYTES, COMPUTE_BOUND_TOKENS
from qbench.kernels.peers.kt.experts import BACKENDS, KtExperts, KtLayer, KtSizes, contender_name, fastest
from qbench.speed.operands import operands_of_linear
from quant.formats import dequantize, get_format
from quant.qtensor import QTensor
from quant.recipes.containers import fit_row

# Those of GGUF take a layer's bytes, the others round the values of these in their own way.
BACKENDS_OF = {
    "q4_k": ("Q4_K", "RAWINT4", "INT4"),
    "w4g128": ("RAWINT4", "INT4"),
    "q8_0": ("Q8_0", "INT8", "FP8"),
    "w8a8": ("INT8", "FP8"),
    "bf16": ("BF16",),
}


class KtLayers:
    """A layer in each backend that holds it, loaded when first asked for and kept for calls of other tokens.

    qtensors  gate, up [I, K] and down [K, I] of every expert
    sizes     as KtLayer has them
    """

    def __init__(self, format_name: str, qtensors: list[QTensor], sizes: KtSizes) -> None:
        self.names = [name for name in BACKENDS_OF.get(format_name, ()) if holds(name, sizes)]
        self.qtensors = dict(zip(("gate", "up", "down"), qtensors, strict=True))
        self.sizes = sizes
        self.layers: dict[str, KtLayer] = {}

    def contender(self, x: np.ndarray, routes: list[tuple[np.ndarray, np.ndarray]]) -> KtExperts:
        """The fastest of them at these calls. raises Absent if there is no such library"""
        if not self.names:
            raise Absent("no backend holds rows of these sizes")
        for name in self.names:
            if name not in self.layers:
                self.layers[name] = KtLayer(name, self.sizes, self.weights(name))
        return fastest({name: KtExperts(layer, x, routes) for name, layer in self.layers.items()})

    def weights(self, backend: str) -> dict[str, np.ndarray]:
        """Weights of one expert in KtLayer's form; all experts have the same."""
        is_gguf = BACKENDS[backend].is_gguf
        return {p: (q.parts["blocks"] if is_gguf else dequantize(q))[None] for p, q in self.qtensors.items()}

    def close(self) -> None:
        for layer in self.layers.values():
            layer.close()


def holds(backend: str, sizes: KtSizes) -> bool:
    return all(size % BACKENDS[backend].multiple == 0 for size in (sizes["hidden_size"], sizes["ffn_size"]))


# hidden, expert's width, experts, experts per token: Qwen3-30B-A3B, DeepSeek-V2-Lite
SHAPES = ((2048, 768, 128, 8), (2048, 1408, 64, 6))
CHECKED_TOKENS = 2
SEED = 18


class Layer:
    """Experts of equal bytes in memory of their own, which no kernel can notice, and the routing of each call."""

    def __init__(self, format_name: str, hidden: int, ffn: int, num_experts: int) -> None:
        rng = np.random.default_rng(SEED)
        self.qtensors = [
            random_weight(get_format(format_of(format_name, row_size)), (num_rows, row_size), rng, 0.02)
            for num_rows, row_size in ((ffn, hidden), (ffn, hidden), (hidden, ffn))
        ]
        self.expert_bytes = sum(cpu_kernels.packed_linear_bytes(q.format, q.shape) for q in self.qtensors)
        packed = [[pack(qtensor) for _ in range(num_experts)] for qtensor in self.qtensors]
        self.experts = cpu_kernels.PackedExperts(*packed)

    def check(self, x: np.ndarray, weights: np.ndarray, y: np.ndarray) -> Deviation:
        """The first tokens against float64: since all experts are equal, one net times the sum of the weights.

        Loosely, as it is for the self-test to be exact: each of three products may round its input to 8 bits with one
        scale per token, an error of 1 / 127 of the largest input a step, which is six deviations of step / sqrt(12) of
        the norm of its terms; the three add up, the first two through up's and gate's size.
        """
        x, (gate, up, down) = x[:CHECKED_TOKENS].astype(np.float64), self.dense()
        g, u, hidden, y_true = net(x, gate, up, down)
        total = weights[:CHECKED_TOKENS].sum(axis=1, keepdims=True)
        step = np.abs(x).max(axis=1, keepdims=True) / 127 / 12**0.5
        moved = step * (np.linalg.norm(gate, axis=1) * np.abs(u) + np.linalg.norm(up, axis=1) * np.abs(g))
        rounded = np.abs(hidden).max(axis=1, keepdims=True) / 127 / 12**0.5 * np.linalg.norm(down, axis=1)
        bound = 6 * total * (np.sqrt(moved**2 @ (down**2).T) + rounded)
        return deviation(y[:CHECKED_TOKENS], total * y_true, bound)

    def check_requantized(self, x: np.ndarray, weights: np.ndarray, y: np.ndarray) -> Deviation:
        """The same by norms, of contenders that round the weights once more.

        16 levels a row of normal weights, as kt-kernel's INT4 has them, cost 0.27; unlike outputs are 1.4 apart.
        """
        y_true = net(x[:CHECKED_TOKENS].astype(np.float64), *self.dense())[-1]
        expected = weights[:CHECKED_TOKENS].sum(axis=1, keepdims=True) * y_true
        return Deviation(float(np.linalg.norm(y[:CHECKED_TOKENS] - expected) / np.linalg.norm(expected)), 0.4)

    def dense(self) -> list[np.ndarray]:
        return [dequantize(qtensor).astype(np.float64) for qtensor in self.qtensors]


def net(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, ...]:
    """gate's and up's product, the input of down, and its product"""
    g, u = x @ gate.T, x @ up.T
    hidden = g / (1 + np.exp(-g)) * u
    return g, u, hidden, hidden @ down.T


def format_of(format_name: str, row_size: int) -> str:
    """Rows that a GGUF type cannot hold are of the one that llama.cpp gives them; others are left to the caller."""
    in_gguf = get_format(format_name).gguf_type is not None
    return fit_row("down", format_name, row_size, "gguf") if in_gguf else format_name


def pack(qtensor: QTensor) -> cpu_kernels.PackedLinear:
    return cpu_kernels.PackedLinear(qtensor.format, qtensor.parts | qtensor.shared, qtensor.shape)


class OurExperts:
    """The fused tasks; each call is routed to other experts, so that theirs come from memory."""

    def __init__(self, layer: Layer, x: np.ndarray, routes: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.layer, self.x, self.routes = layer, x, routes
        self.y = np.full_like(x, np.nan)
        self.how = "fused"

    def run(self) -> None:
        for chosen, weights in self.routes:
            self.layer.experts.forward(self.x, chosen, weights, out=self.y)
        self.how = ", ".join(dict.fromkeys(self.layer.experts.last_isa))

    def output(self) -> np.ndarray:
        return self.y


def moe_benchmarks(
    format_name: str, tokens: tuple[int, ...], threads: int, shapes: Sequence[str] = ANY_SHAPE
) -> Iterator[Benchmark]:
    for hidden, ffn, num_experts, num_chosen in SHAPES:
        if not any(fnmatchcase(shape_name(hidden, ffn, num_experts, num_chosen), pattern) for pattern in shapes):
            continue
        if not all(get_format(format_of(format_name, row)).holds_row(row) for row in (hidden, ffn)):
            continue
        layer = Layer(format_name, hidden, ffn, num_experts)
        sizes: KtSizes = {
            "hidden_size": hidden,
            "ffn_size": ffn,
            "num_experts": num_experts,
            "num_chosen": num_chosen,
            "max_tokens": max(tokens),
            "threads": threads,
        }
        peers = KtLayers(format_name, layer.qtensors, sizes)
        try:
            for num_tokens in tokens:
                yield of_tokens(layer, peers, format_name, num_tokens, num_experts, num_chosen)
        finally:
            peers.close()


def shape_name(hidden: int, ffn: int, num_experts: int, num_chosen: int) -> str:
    return f"{hidden}/{ffn} {num_chosen} of {num_experts}"


def of_tokens(
    layer: Layer, peers: KtLayers, format_name: str, num_tokens: int, num_experts: int, num_chosen: int
) -> Benchmark:
    ffn, hidden = layer.qtensors[0].shape
    rng = np.random.default_rng((SEED, num_tokens))
    x = rng.standard_normal((num_tokens, hidden)).astype(np.float32)
    expected = num_experts * (1 - (1 - num_chosen / num_experts) ** num_tokens)  # different experts of a call
    calls = ceil(COLD_BYTES / (expected * layer.expert_bytes)) if num_tokens < COMPUTE_BOUND_TOKENS else 1
    routes = [route(num_tokens, num_experts, num_chosen, rng) for _ in range(calls)]
    used = np.mean([len(np.unique(chosen)) for chosen, _ in routes])
    contenders: dict[str, Callable[[], Contender]] = {OURS: lambda: OurExperts(layer, x, routes)}
    if format_name in BACKENDS_OF:
        contenders[contender_name()] = lambda: peers.contender(x, routes)
    return Benchmark(
        op=f"moe_{format_name}",
        shape=shape_name(hidden, ffn, num_experts, num_chosen),
        tokens=num_tokens,
        contenders=contenders,
        calls=calls,
        moved_bytes=round(used * layer.expert_bytes) + 8 * num_tokens * hidden,
        operations=6 * num_tokens * num_chosen * hidden * ffn,
        arithmetic=operands_of_linear(format_name),
        check=partial(layer.check, x, routes[-1][1]),
        own_checks={contender_name(): partial(layer.check_requantized, x, routes[-1][1])},
    )


def route(
    num_tokens: int, num_experts: int, num_chosen: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Each token to different experts, all as likely: chosen [M, k] int64, weights [M, k] float32 of sum 1"""
    order = rng.permuted(np.tile(np.arange(num_experts), (num_tokens, 1)), axis=1)
    weights = rng.random((num_tokens, num_chosen), dtype=np.float32)
    return order[:, :num_chosen].copy(), weights / weights.sum(axis=1, keepdims=True)
