"""The libggml that llama-cpp-python carries, through ctypes: its graphs on the CPU, linears and attention."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from qbench.kernels.benchmark import Absent
from qbench.measure.host.llama_cpp_package import limit_waiting, package_folder
from quant.errors import InputError
from quant.formats import get_format

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8  # ggml_type
POINTER, SIZE, INT, INT64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64


class InitParams(ctypes.Structure):
    _fields_ = (("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool))


# ggml.h, ggml-backend.h, ggml-cpu.h: name -> (result, arguments)
BASE = {
    "ggml_init": (POINTER, [InitParams]),
    "ggml_free": (None, [POINTER]),
    "ggml_log_set": (None, [POINTER, POINTER]),
    "ggml_tensor_overhead": (SIZE, []),
    "ggml_graph_overhead": (SIZE, []),
    "ggml_new_tensor_2d": (POINTER, [POINTER, INT, INT64, INT64]),
    "ggml_new_tensor_4d": (POINTER, [POINTER, INT, INT64, INT64, INT64, INT64]),
    "ggml_mul_mat": (POINTER, [POINTER, POINTER, POINTER]),
    "ggml_flash_attn_ext": (POINTER, [POINTER] * 5 + [ctypes.c_float] * 3),
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
    "ggml_cpu_has_amx_int8": (INT, []),
    "ggml_backend_cpu_reg": (POINTER, []),
    "ggml_backend_cpu_init": (POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [POINTER, INT]),
}
_SILENCE = ctypes.CFUNCTYPE(None, INT, ctypes.c_char_p, POINTER)(lambda level, text, data: None)


@cache
def libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """raises Absent without llama-cpp-python, or with one that has another libggml"""
    try:
        folder = package_folder() / "lib"
    except InputError as error:
        raise Absent(str(error)) from error
    limit_waiting()
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


def buffer_types(base: ctypes.CDLL, cpu: ctypes.CDLL) -> tuple[int, list[int]]:
    """The device, and the buffer types for weights: the extra ones first, the plain one last."""
    registry = cpu.ggml_backend_cpu_reg()
    device = base.ggml_backend_reg_dev_get(registry, 0)
    address = base.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    kinds = []
    if address:
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(POINTER), POINTER)(address)(device)
        while extra[len(kinds)]:
            kinds.append(extra[len(kinds)])
    return device, [*kinds, base.ggml_backend_dev_buffer_type(device)]


@cache
def own_thread() -> ThreadPoolExecutor:
    """One thread for all graphs of a build with AMX.

    ggml configures the tiles once per thread and relies on it from then on. Our kernels release them when they end, so
    the next product on their thread would be an illegal instruction.
    """
    return ThreadPoolExecutor(1, "ggml")


class Graph:
    """Operations that are computed one after the other, with a scratch memory and threads of their own.

    A subclass makes tensors with `tensor`, in contexts of `context`, and ends with `allocate(outputs)`.

    raises    Absent without libggml
    """

    def __init__(self, threads: int) -> None:
        self.base, self.cpu = libraries()
        self.contexts: list[int] = []
        self.buffers: list[int] = []
        self.backend = self.cpu.ggml_backend_cpu_init()
        self.cpu.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.has_tiles = bool(self.cpu.ggml_cpu_has_amx_int8())

    @property
    def build(self) -> str:
        """The end of `how`: ", AMX_INT8 build" or "" """
        return ", AMX_INT8 build" if self.has_tiles else ""

    def run(self) -> None:
        compute = self.base.ggml_backend_graph_compute
        given = self.backend, self.graph
        status = own_thread().submit(compute, *given).result() if self.has_tiles else compute(*given)
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute ended with status {status}")

    def context(self, num_tensors: int) -> int:
        size = num_tensors * self.base.ggml_tensor_overhead() + self.base.ggml_graph_overhead()
        self.contexts.append(self.base.ggml_init(InitParams(size, None, True)))
        return self.contexts[-1]

    def allocate(self, context: int, outputs: list[int]) -> None:
        """Memory for the tensors of `context`, and the graph that computes `outputs`."""
        self.buffers.append(self.base.ggml_backend_alloc_ctx_tensors(context, self.backend))
        self.graph = self.base.ggml_new_graph(context)
        for output in outputs:
            self.base.ggml_build_forward_expand(self.graph, output)

    def set(self, tensor: int, values: np.ndarray) -> None:
        self.base.ggml_backend_tensor_set(tensor, np.ascontiguousarray(values).ctypes.data, 0, values.nbytes)

    def get(self, tensor: int, shape: tuple[int, ...]) -> np.ndarray:
        values = np.empty(shape, np.float32)
        self.base.ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
        return values

    def free(self) -> None:
        while self.buffers:
            self.base.ggml_backend_buffer_free(self.buffers.pop())
        while self.contexts:
            self.base.ggml_free(self.contexts.pop())

    def __del__(self) -> None:
        if hasattr(self, "backend"):
            self.free()
            self.base.ggml_backend_free(self.backend)


class GgmlLinears(Graph):
    """Several linears on one input, computed as one graph: y[i] = x @ weight.T, each with its own copy of the weight.

    A weight goes where llama.cpp puts it: into the buffer that repacks it for this processor, if ggml has one for its
    type and shape, else into a plain one.

    data      uint8 [N, row bytes] as GGUF stores them
    x         [M, K] float32
    raises    Absent without libggml
    """

    def __init__(self, gguf_type: int, data: np.ndarray, x: np.ndarray, copies: int, threads: int) -> None:
        super().__init__(threads)
        num_tokens, row_size = x.shape
        self.shape = num_tokens, len(data)
        device, kinds = buffer_types(self.base, self.cpu)
        untried = list(kinds)
        while True:
            kind = untried.pop(0)
            context = self.context(copies)
            weights = [self.base.ggml_new_tensor_2d(context, gguf_type, row_size, len(data)) for _ in range(copies)]
            self.buffers.append(self.base.ggml_backend_alloc_ctx_tensors_from_buft(context, kind))
            steps = self.context(copies + 1)
            x_tensor = self.base.ggml_new_tensor_2d(steps, F32, row_size, num_tokens)
            self.outputs = [self.base.ggml_mul_mat(steps, weight, x_tensor) for weight in weights]
            if not untried or self.base.ggml_backend_dev_supports_op(device, self.outputs[0]):
                break
            self.free()
        self.how = self.base.ggml_backend_buft_name(kind).decode() + self.build
        for weight in weights:
            self.set(weight, data)
        self.allocate(steps, self.outputs)
        self.set(x_tensor, x)

    def output(self) -> np.ndarray:
        return self.get(self.outputs[-1], self.shape)


KV_TYPES = {"f16": F16, "q8_0": Q8_0, "q4_0": Q4_0}
NO_BIAS, NO_SOFTCAP = 0.0, 0.0


class GgmlAttention(Graph):
    """Causal attention of the last T tokens, several times, each over its own copy of the keys and values.

    q         [H, T, D] float32
    k, v      [G, S, D] float32, kept in `kv`, one of KV_TYPES
    raises    Absent without libggml
    """

    def __init__(
        self, kv: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, softmax_scale: float, copies: int, threads: int
    ) -> None:
        super().__init__(threads)
        num_heads, num_queries, head_dim = q.shape
        num_kv_heads, num_tokens, _ = k.shape
        self.shape, self.how = (num_queries, num_heads, head_dim), kv + self.build
        context = self.context(3 * copies + 2)
        new = self.base.ggml_new_tensor_4d
        q_tensor = new(context, F32, head_dim, num_queries, num_heads, 1)
        mask = new(context, F16, num_tokens, num_queries, 1, 1) if num_queries > 1 else None
        pairs = [
            tuple(new(context, KV_TYPES[kv], head_dim, num_tokens, num_kv_heads, 1) for _ in "kv")
            for _ in range(copies)
        ]
        scalars = softmax_scale, NO_BIAS, NO_SOFTCAP
        self.outputs = [self.base.ggml_flash_attn_ext(context, q_tensor, *pair, mask, *scalars) for pair in pairs]
        self.allocate(context, self.outputs)
        self.set(q_tensor, q)
        if mask is not None:
            hidden = np.arange(num_tokens) > np.arange(num_tokens - num_queries, num_tokens)[:, None]  # [T, S]
            self.set(mask, np.where(hidden, -np.inf, 0).astype(np.float16))
        stored = [get_format(kv).quantize(x.reshape(-1, head_dim)).parts["blocks"] for x in (k, v)]
        for pair in pairs:
            for tensor, blocks in zip(pair, stored, strict=True):
                self.set(tensor, blocks)

    def output(self) -> np.ndarray:
        """[H, T, D]"""
        return self.get(self.outputs[-1], self.shape).swapaxes(0, 1)
