"""A linear layer run by the libggml that llama-cpp-python carries, through ctypes: a peer for our kernels."""

import ctypes
from pathlib import Path

import numpy as np

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
        "ggml_free": (None, [pointer]),
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

    def close(self) -> None:
        self._base.ggml_free(self._context)

    def _tensor(self, ggml_type: int, row_size: int, values: np.ndarray) -> int:
        tensor = self._base.ggml_new_tensor_2d(self._context, ggml_type, row_size, len(values))
        ctypes.memmove(self._base.ggml_get_data(tensor), values.ctypes.data, values.nbytes)
        return tensor
