"""Linears run by the libggml that llama-cpp-python carries, through ctypes, as llama.cpp runs them.

A weight goes where llama.cpp puts it: into the buffer that repacks it for this processor, where ggml has one for its
type and shape, else into a plain one.
"""

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np

from qbench.kernels.benchmark import Absent

F32 = 0  # ggml_type
POINTER, SIZE, INT, INT64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool))


# ggml.h, ggml-backend.h, ggml-cpu.h: name -> (result, arguments)
BASE = {
    "ggml_init": (POINTER, [_InitParams]),
    "ggml_free": (None, [POINTER]),
    "ggml_log_set": (None, [POINTER, POINTER]),
    "ggml_tensor_overhead": (SIZE, []),
    "ggml_graph_overhead": (SIZE, []),
    "ggml_new_tensor_2d": (POINTER, [POINTER, INT, INT64, INT64]),
    "ggml_mul_mat": (POINTER, [POINTER, POINTER, POINTER]),
    "ggml_new_graph": (POINTER, [POINTER]),
    "ggml_build_forward_expand": (None, [POINTER, POINTER]),
    "ggml_backend_reg_dev_get": (POINTER, [POINTER, SIZE]),
    "ggml_backend_reg_get_proc_address": (POINTER, [POINTER, ctypes.c_char_p]),
    "ggml_backend_dev_buffer_type": (POINTER, [POINTER]),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, [POINTER, POINTER]),
    "ggml_backend_buft_name": (ctypes.c_char_p, [POINTER]),
    "ggml_backend_alloc_ctx_tensors": (POINTER, [POINTER, POINTER]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (POINTER, [POINTER, POINTER]),
    "ggml_backend_buffer_free": (None, [POINTER]),
    "ggml_backend_free": (None, [POINTER]),
    "ggml_backend_tensor_set": (None, [POINTER, POINTER, SIZE, SIZE]),
    "ggml_backend_tensor_get": (None, [POINTER, POINTER, SIZE, SIZE]),
    "ggml_backend_graph_compute": (INT, [POINTER, POINTER]),
}
CPU = {
    "ggml_cpu_init": (None, []),
    "ggml_backend_cpu_reg": (POINTER, []),
    "ggml_backend_cpu_init": (POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [POINTER, INT]),
}
_SILENCE = ctypes.CFUNCTYPE(None, INT, ctypes.c_char_p, POINTER)(lambda level, text, data: None)


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """raises Absent without llama-cpp-python, or with one that has another libggml"""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise Absent("llama-cpp-python is not installed")
    folder = Path(spec.origin).parent / "lib"
    try:
        libraries = ctypes.CDLL(str(folder / "libggml-base.so")), ctypes.CDLL(str(folder / "libggml-cpu.so"))
        for library, signatures in zip(libraries, (BASE, CPU), strict=True):
            for name, (result, arguments) in signatures.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise Absent(f"libggml of llama-cpp-python is not the one that is known: {error}") from error
    libraries[0].ggml_log_set(ctypes.cast(_SILENCE, POINTER), None)
    libraries[1].ggml_cpu_init()
    return libraries


def _buffer_types(base: ctypes.CDLL, cpu: ctypes.CDLL) -> tuple[int, list[int]]:
    """The device, and where weights may lie: the extra buffer types first, the plain one last."""
    registry = cpu.ggml_backend_cpu_reg()
    device = base.ggml_backend_reg_dev_get(registry, 0)
    address = base.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    kinds = []
    if address:
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(POINTER), POINTER)(address)(device)
        while extra[len(kinds)]:
            kinds.append(extra[len(kinds)])
    return device, [*kinds, base.ggml_backend_dev_buffer_type(device)]


class GgmlLinears:
    """Several linears on one input, computed as one graph: y[i] = x @ weight.T, each with its own copy of the weight.

    data      uint8 [N, row bytes], what GGUF stores
    x         [M, K] float32
    raises    Absent without libggml
    """

    def __init__(self, gguf_type: int, data: np.ndarray, x: np.ndarray, copies: int, threads: int) -> None:
        self._base, self._cpu = _libraries()
        num_tokens, row_size = x.shape
        self._shape = num_tokens, len(data)
        device, kinds = _buffer_types(self._base, self._cpu)
        self._backend = self._cpu.ggml_backend_cpu_init()
        self._cpu.ggml_backend_cpu_set_n_threads(self._backend, threads)
        for kind in kinds:
            self._weights = self._context(copies)
            weights = [self._tensor(self._weights, gguf_type, row_size, len(data)) for _ in range(copies)]
            self._weight_buffer = self._base.ggml_backend_alloc_ctx_tensors_from_buft(self._weights, kind)
            self._steps = self._context(copies + 1, self._base.ggml_graph_overhead())
            x_tensor = self._tensor(self._steps, F32, row_size, num_tokens)
            self._outputs = [self._base.ggml_mul_mat(self._steps, weight, x_tensor) for weight in weights]
            if kind == kinds[-1] or self._base.ggml_backend_dev_supports_op(device, self._outputs[0]):
                break
            self._free_tensors()
        self.how = self._base.ggml_backend_buft_name(kind).decode()
        for weight in weights:
            self._base.ggml_backend_tensor_set(weight, data.ctypes.data, 0, data.nbytes)
        self._step_buffer = self._base.ggml_backend_alloc_ctx_tensors(self._steps, self._backend)
        self._base.ggml_backend_tensor_set(x_tensor, x.ctypes.data, 0, x.nbytes)
        self._graph = self._base.ggml_new_graph(self._steps)
        for output in self._outputs:
            self._base.ggml_build_forward_expand(self._graph, output)

    def run(self) -> None:
        status = self._base.ggml_backend_graph_compute(self._backend, self._graph)
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute ended with status {status}")

    def output(self) -> np.ndarray:
        y = np.empty(self._shape, np.float32)
        self._base.ggml_backend_tensor_get(self._outputs[-1], y.ctypes.data, 0, y.nbytes)
        return y

    def __del__(self) -> None:
        if hasattr(self, "_graph"):
            self._base.ggml_backend_buffer_free(self._step_buffer)
            self._free_tensors()
            self._base.ggml_backend_free(self._backend)

    def _context(self, num_tensors: int, more_bytes: int = 0) -> int:
        size = num_tensors * self._base.ggml_tensor_overhead() + more_bytes
        return self._base.ggml_init(_InitParams(size, None, True))

    def _tensor(self, context: int, kind: int, row_size: int, num_rows: int) -> int:
        return self._base.ggml_new_tensor_2d(context, kind, row_size, num_rows)

    def _free_tensors(self) -> None:
        self._base.ggml_backend_buffer_free(self._weight_buffer)
        self._base.ggml_free(self._weights)
        self._base.ggml_free(self._steps)
