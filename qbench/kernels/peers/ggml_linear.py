"""Linears as llama.cpp runs them.

A weight goes where llama.cpp puts it: into the buffer that repacks it for this processor, where ggml has one for its
type and shape, else into a plain one.
"""

import numpy as np

from qbench.kernels.peers.ggml import F32, Graph, buffer_types


class GgmlLinears(Graph):
    """Several linears on one input, computed as one graph: y[i] = x @ weight.T, each with its own copy of the weight.

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
