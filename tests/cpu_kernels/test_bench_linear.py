"""Speed of the Q8_0 linear and its peers: `pytest --benchmark-only tests/cpu_kernels`.

One round runs four layers of equal shape and different weights, 71 MB of Q8_0, so that weights come from memory as
they do in a model. Every case is checked before it is timed. extra_info holds, per layer:
    operations     2 * M * N * K
    bytes          the packed weight, and x and y once in float32
    roofline_ms    max(bytes / bandwidth, operations / peak), both measured in this session with as many threads
    share          roofline_ms / the fastest round: 1 is all that the machine can do
"""

from collections.abc import Callable

import gguf
import numpy as np
import pytest
from support.close import assert_close
from support.q8_0 import packed_q8_0, random_q8_0

import cpu_kernels
from cpu_kernels.linear import linear_ref

NUM_LAYERS, NUM_ROWS, ROW_SIZE = 4, 4096, 4096
TOKENS = (1, 4, 16, 64, 512)


@pytest.fixture(scope="module")
def roofline() -> dict[str, float]:
    threads = cpu_kernels.get_num_threads()
    return {
        "bandwidth": cpu_kernels.measure_read_bandwidth(threads),
        "int8_peak": cpu_kernels.measure_int8_peak(threads)[0],
    }


@pytest.fixture(scope="module")
def weights() -> list[np.ndarray]:
    return [random_q8_0(NUM_ROWS, ROW_SIZE, seed) for seed in range(NUM_LAYERS)]


@pytest.fixture(scope="module")
def expected(weights) -> dict[str, np.ndarray]:
    """Output of layer 0 for the first rows of every x, with and without rounding x to int8."""
    x, dense = x_of(4), gguf.dequantize(weights[0], gguf.GGMLQuantizationType.Q8_0)
    return {"int8 x": linear_ref(x, dense), "float x": x.astype(np.float64) @ dense.T.astype(np.float64)}


def x_of(num_tokens: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((512, ROW_SIZE)).astype(np.float32)[:num_tokens]


def run_ours(weights: list[np.ndarray], x: np.ndarray) -> Callable[[], np.ndarray]:
    packed = [packed_q8_0(blocks) for blocks in weights]
    out = np.full((len(x), NUM_ROWS), np.nan, np.float32)

    def run() -> np.ndarray:
        for layer in reversed(packed):
            layer.matmul(x, out=out)
        return out

    return run


def run_torch(weights: list[np.ndarray], x: np.ndarray, dtype_name: str) -> Callable[[], np.ndarray]:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, dtype_name)
    torch.set_num_threads(cpu_kernels.get_num_threads())
    dense = [torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)).to(dtype) for blocks in weights]
    inputs = torch.from_numpy(x).to(dtype)

    def run() -> np.ndarray:
        for layer in reversed(dense):
            y = torch.nn.functional.linear(inputs, layer)
        return y.float().numpy()

    return run


def run_ggml(weights: list[np.ndarray], x: np.ndarray) -> Callable[[], np.ndarray]:
    pytest.importorskip("llama_cpp")
    from support.ggml_linear import GgmlLinears

    linears = GgmlLinears(weights, x, cpu_kernels.get_num_threads())

    def run() -> np.ndarray:
        linears.compute()
        return linears.output(0)[:4]

    return run


PEERS = {
    "ours": run_ours,
    "ggml": run_ggml,
    "torch-float32": lambda weights, x: run_torch(weights, x, "float32"),
    "torch-bfloat16": lambda weights, x: run_torch(weights, x, "bfloat16"),
}
# The oracle of each, and how far from it relative to the largest output: float32 roundings of 128 blocks; scales of the
# activations in half precision; products of rows rounded to the dtype of torch.
ORACLE = {
    "ours": ("int8 x", (ROW_SIZE // 32 + 2) * 2.0**-24),
    "ggml": ("int8 x", 2.0**-10),
    "torch-float32": ("float x", ROW_SIZE**0.5 * 2.0**-23),
    "torch-bfloat16": ("float x", 2.0**-8),
}


@pytest.mark.parametrize("impl", PEERS)
@pytest.mark.parametrize("num_tokens", TOKENS, ids="M={}".format)
def test_linear_q8_0(benchmark, weights, expected, roofline, num_tokens, impl):
    run = PEERS[impl](weights, x_of(num_tokens))
    y = run()[:4]
    oracle, tolerance = ORACLE[impl]
    assert_close(y, expected[oracle][: len(y)], atol=tolerance * np.abs(expected[oracle]).max())

    benchmark.group = f"linear_q8_0 {NUM_ROWS}x{ROW_SIZE} M={num_tokens}, {NUM_LAYERS} layers a round"
    benchmark.pedantic(run, rounds=20 if num_tokens < 64 else 5, warmup_rounds=2)

    seconds = benchmark.stats.stats.min / NUM_LAYERS
    operations = 2 * num_tokens * NUM_ROWS * ROW_SIZE
    benchmark.extra_info |= {
        "layer_ms": seconds * 1e3,
        "tera_ops": operations / seconds / 1e12,
        "threads": cpu_kernels.get_num_threads(),
    }
    if impl == "ours":
        moved = packed_q8_0(weights[0]).nbytes + 4 * num_tokens * (ROW_SIZE + NUM_ROWS)
        bound = max(moved / roofline["bandwidth"], operations / roofline["int8_peak"])
        benchmark.extra_info |= {
            "isa": cpu_kernels.chosen_isa("linear_q8_0"),
            "gb_s": moved / seconds / 1e9,
            "roofline_ms": bound * 1e3,
            "share": bound / seconds,
            **roofline,
        }
