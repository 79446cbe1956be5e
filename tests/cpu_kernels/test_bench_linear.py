"""Speed of the Q8_0 linear and its peers: `pytest --benchmark-only tests/cpu_kernels`.

One round runs four layers of equal shape and different weights, 71 MB of Q8_0, so that weights come from memory as
they do in a model. Every case is checked before it is timed. extra_info holds, per layer:
    operations     2 * M * N * K
    bytes          the packed weight, and x and y once in float32
    roofline_ms    max(bytes / bandwidth, operations / peak), both measured in this session with as many threads
    share          roofline_ms / the fastest round: 1 is all that the machine can do
"""

import ctypes
from collections.abc import Callable
from pathlib import Path

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


# libggml, which llama-cpp-python carries, through ctypes
GGML_TYPE_F32, GGML_TYPE_Q8_0 = 0, 8


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _load() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    import llama_cpp

    folder = Path(llama_cpp.__file__).parent / "lib"
    base, cpu = ctypes.CDLL(str(folder / "libggml-base.so")), ctypes.CDLL(str(folder / "libggml-cpu.so"))
    pointer, size, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    signatures = {
        "ggml_init": (pointer, [_InitParams]),
        "ggml_new_tensor_2d": (pointer, [pointer, integer, size, size]),
        "ggml_get_data": (pointer, [pointer]),
        "ggml_mul_mat": (pointer, [pointer, pointer, pointer]),
        "ggml_new_graph": (pointer, [pointer]),
        "ggml_build_forward_expand": (None, [pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(base, name)
        function.restype, function.argtypes = result, arguments
    cpu.ggml_graph_compute_with_ctx.restype = integer
    cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, integer]
    cpu.ggml_cpu_init()
    return base, cpu


class GgmlLinears:
    """Several Q8_0 linears on one input, computed as one graph: y[i] = x @ weight[i].T.

    blocks   one uint8 [N, K // 32 * 34] a linear
    x        [M, K] float32
    """

    def __init__(self, blocks: list[np.ndarray], x: np.ndarray, threads: int) -> None:
        self._base, self._cpu = _load()
        self._threads = threads
        num_tokens, row_size = x.shape
        num_rows = len(blocks[0])
        # Each call of compute takes its scratch from the context and keeps it, so leave room for many.
        scratch = 512 << 20
        data_bytes = sum(b.nbytes + 4 * num_tokens * num_rows for b in blocks) + x.nbytes
        self._context = self._base.ggml_init(_InitParams(data_bytes + scratch, None, False))
        x_tensor = self._tensor(GGML_TYPE_F32, row_size, x)
        self._graph = self._base.ggml_new_graph(self._context)
        self._outputs = []
        for weight in blocks:
            weight_tensor = self._tensor(GGML_TYPE_Q8_0, row_size, weight)
            output = self._base.ggml_mul_mat(self._context, weight_tensor, x_tensor)
            self._base.ggml_build_forward_expand(self._graph, output)
            self._outputs.append((output, (num_tokens, num_rows)))

    def compute(self) -> None:
        status = self._cpu.ggml_graph_compute_with_ctx(self._context, self._graph, self._threads)
        assert status == 0, status

    def output(self, index: int) -> np.ndarray:
        tensor, shape = self._outputs[index]
        data = ctypes.cast(self._base.ggml_get_data(tensor), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, shape).copy()

    def _tensor(self, ggml_type: int, row_size: int, values: np.ndarray) -> int:
        tensor = self._base.ggml_new_tensor_2d(self._context, ggml_type, row_size, len(values))
        ctypes.memmove(self._base.ggml_get_data(tensor), values.ctypes.data, values.nbytes)
        return tensor


def run_ggml(weights: list[np.ndarray], x: np.ndarray) -> Callable[[], np.ndarray]:
    pytest.importorskip("llama_cpp")
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
