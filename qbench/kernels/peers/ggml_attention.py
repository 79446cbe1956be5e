"""Attention as llama.cpp runs it on the CPU: flash attention over keys and values of a layer."""

import numpy as np

from qbench.kernels.peers.ggml import F16, F32, Q4_0, Q8_0, Graph
from quant.formats import get_format

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
