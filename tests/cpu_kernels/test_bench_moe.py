"""Speed of a layer of experts beside kt-kernel's: `pytest --benchmark-only tests/cpu_kernels/test_bench_moe.py`.

QBENCH_KT_PYTHON names the Python that has kt-kernel (tests/support/kt_moe.py); without it ours runs alone. Ours and
the peers take turns round by round, each on the experts that a new random routing chooses. extra_info holds
    gb_s        packed bytes of the experts that were chosen / time, of the fastest round
    tera_ops    6 * M * k * hidden * ffn / time, likewise
    bandwidth   of this session, GB/s; int8_peak in tera operations
    peers       for each backend: median ms, and its ratio to our median
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from support.kt_moe import KtLayer, kt_python

import cpu_kernels
from quant.formats import get_format

# hidden size, width of an expert, experts, chosen
SHAPES = {"A": (2048, 768, 128, 8), "B": (2048, 1408, 64, 6)}
# gate and up, down -> backends of as many bits. Rows of 1408 are no blocks of 256, so `down` of Q4_K is Q5_0 there,
# as llama.cpp has it.
FORMATS = {
    "q4_k": ("Q4_K", "RAWINT4", "INT4"),
    "w4g128": ("RAWINT4", "INT4"),
    "q8_0": ("Q8_0", "INT8", "FP8"),
    "w8a8": ("INT8", "FP8"),
    "bf16": ("BF16",),
}
TOKENS = (1, 4, 32, 512)
DISTINCT = 4  # experts with values of their own; all have their own memory


def random_experts(shape: str) -> dict[str, np.ndarray]:
    hidden, ffn, _, _ = SHAPES[shape]
    rng = np.random.default_rng(0)
    shapes = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    return {
        name: rng.standard_normal((DISTINCT, n, k), dtype=np.float32) / np.float32(k**0.5)
        for name, (n, k) in shapes.items()
    }


def format_of(name: str, projection: str, shape: str) -> str:
    return "q5_0" if (name, projection, shape) == ("q4_k", "down", "B") else name


class Pair:
    """Our layer, and the peers that there are for it."""

    def __init__(self, shape: str, name: str, folder: Path) -> None:
        self.shape, self.name = shape, name
        hidden, ffn, num_experts, num_chosen = SHAPES[shape]
        weights = random_experts(shape)
        qtensors = {
            projection: [get_format(format_of(name, projection, shape)).quantize(weight) for weight in distinct]
            for projection, distinct in weights.items()
        }
        self.experts = cpu_kernels.PackedExperts(
            *(
                [cpu_kernels.PackedLinear(q.format, q.parts, q.shape) for q in qtensors[projection] * copies]
                for projection, copies in dict.fromkeys(("gate", "up", "down"), num_experts // DISTINCT).items()
            )
        )
        sizes = {
            "hidden_size": hidden,
            "ffn_size": ffn,
            "num_experts": num_experts,
            "num_chosen": num_chosen,
            "max_tokens": max(TOKENS),
            "threads": cpu_kernels.get_num_threads(),
        }
        self.peers = {}
        for backend in FORMATS[name] if kt_python() else ():
            gguf = backend.lower() if backend in ("Q4_K", "Q8_0") else None
            if gguf and ffn % 256:
                continue  # refused by kt-kernel, Q8_0 as well
            given = {p: np.stack([q.parts["blocks"] for q in its]) for p, its in qtensors.items()} if gguf else weights
            (folder / backend).mkdir()
            self.peers[backend] = KtLayer(backend, sizes, given, folder / backend)

    def routing(self, rng: np.random.Generator, num_tokens: int, skewed: bool = False) -> np.ndarray:
        """[M, k]; skewed: half of the tokens have experts 0 and 1 among theirs"""
        _, _, num_experts, num_chosen = SHAPES[self.shape]
        order = rng.random((num_tokens, num_experts))
        if skewed:
            order[: num_tokens // 2, :2] = 2
        return order.argsort(1)[:, ::-1][:, :num_chosen].copy()

    def call(self, num_tokens: int) -> Callable[[np.ndarray], np.ndarray]:
        hidden, _, _, num_chosen = SHAPES[self.shape]
        x = np.random.default_rng(1).standard_normal((num_tokens, hidden), dtype=np.float32)
        weights = np.full((num_tokens, num_chosen), 1 / num_chosen, np.float32)
        out = np.full_like(x, np.nan)
        return lambda chosen: self.experts.forward(x, chosen, weights, out=out)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


@pytest.fixture(scope="module", params=[(s, f) for s in SHAPES for f in FORMATS], ids=lambda p: f"{p[0]}-{p[1]}")
def pair(request, tmp_path_factory):
    shape, name = request.param
    if not all(cpu_kernels.has_packed_linear(format_of(name, projection, shape)) for projection in ("gate", "down")):
        pytest.skip(f"{name} at shape {shape} is not run by cpu_kernels")
    pair = Pair(shape, name, tmp_path_factory.mktemp(f"{shape}-{name}"))
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def roofline() -> dict[str, float]:
    threads = cpu_kernels.get_num_threads()
    return {
        "bandwidth": cpu_kernels.measure_read_bandwidth(threads) / 1e9,
        "int8_peak": cpu_kernels.measure_int8_peak(threads) / 1e12,
    }


@pytest.mark.parametrize("num_tokens", TOKENS, ids="M={}".format)
def test_experts(benchmark, pair, roofline, num_tokens):
    hidden, ffn, num_experts, num_chosen = SHAPES[pair.shape]
    rng, call, warm_up = np.random.default_rng(2), pair.call(num_tokens), pair.call(1)
    peer_ms = {backend: [] for backend in pair.peers}
    num_touched = []

    def next_round():
        chosen = pair.routing(rng, num_tokens)
        num_touched.append(len(np.unique(chosen)))
        for backend, peer in pair.peers.items():
            peer_ms[backend].append(peer(chosen, pair.routing(rng, 1))[0])
        warm_up(pair.routing(rng, 1))  # threads that are awake, as in a decode step, here and there
        return (chosen,), {}

    for backend, peer in pair.peers.items():
        chosen = pair.routing(rng, num_tokens)
        theirs, ours = peer(chosen, chosen[:1])[1], call(chosen)[0]
        # INT4 rounds Gaussian weights to 16 levels a row, which costs 0.27; unlike outputs are 1.4 apart.
        assert np.linalg.norm(theirs - ours) < 0.4 * np.linalg.norm(ours), backend

    benchmark.group = f"experts {pair.shape} {pair.name} M={num_tokens}"
    benchmark.pedantic(call, setup=next_round, rounds=40 if num_tokens < 32 else 7, warmup_rounds=3)
    stats = benchmark.stats.stats
    fastest = int(np.argmin(stats.data))
    touched_bytes = num_touched[-len(stats.data) :][fastest] / num_experts * pair.experts.nbytes
    benchmark.extra_info |= roofline | {
        "gb_s": touched_bytes / stats.min / 1e9,
        "tera_ops": 6 * num_tokens * num_chosen * hidden * ffn / stats.min / 1e12,
        "isa": pair.experts.last_isa,
        "peers": {
            backend: {"median_ms": np.median(ms[3:]), "ratio": np.median(ms[3:]) / stats.median / 1e3}
            for backend, ms in peer_ms.items()
        },
    }


@pytest.mark.parametrize("pair", [("A", "q8_0"), ("A", "q4_k")], ids=lambda p: f"{p[0]}-{p[1]}", indirect=True)
def test_skewed_routing(benchmark, pair):
    """Half of the 512 tokens on two experts, beside tokens that are spread evenly."""
    rng, call = np.random.default_rng(3), pair.call(512)
    balanced_ms = []

    def next_round():
        balanced_ms.append(milliseconds(call, pair.routing(rng, 512)))
        return (pair.routing(rng, 512, skewed=True),), {}

    benchmark.group = f"experts {pair.shape} {pair.name} M=512, skewed"
    benchmark.pedantic(call, setup=next_round, rounds=9, warmup_rounds=1)
    balanced = np.median(balanced_ms[1:])
    benchmark.extra_info |= {
        "balanced_ms": balanced,
        "skewed_over_balanced": benchmark.stats.stats.median * 1e3 / balanced,
    }


def milliseconds(call: Callable[[np.ndarray], np.ndarray], chosen: np.ndarray) -> float:
    start = perf_counter()
    call(chosen)
    return (perf_counter() - start) * 1e3
