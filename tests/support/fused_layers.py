"""A decoder layer of random weights, as one call and as a chain of single calls."""

import numpy as np
from support.random_linear import random_qtensor

from cpu_kernels import KVStore, LinearGroup, PackedLinear, attention_step, rms_norm

HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 96, 6, 2, 32
EPS, SCALE = 1e-5, HEAD_DIM**-0.5
Q_SIZE, KV_SIZE = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM


def pack(num_rows: int, row_size: int, seed: int) -> PackedLinear:
    qtensor = random_qtensor("q8_0", num_rows, row_size, seed=seed)
    return PackedLinear(qtensor.format, qtensor.parts, qtensor.shape)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


class Layer:
    """Weights, and two equal stores: one for the call, one for the chain."""

    def __init__(self, batch: int, kv_format: str = "f32") -> None:
        self.linears = [pack(rows, HIDDEN, seed) for seed, rows in enumerate((Q_SIZE, KV_SIZE, KV_SIZE))]
        self.biases = [random(linear.shape[0], seed=7) for linear in self.linears]
        self.output = pack(HIDDEN, Q_SIZE, 3)
        self.groups = LinearGroup(self.linears, self.biases), LinearGroup([self.output], [None])
        self.stores = [KVStore(kv_format, batch, 32, NUM_KV_HEADS, HEAD_DIM) for _ in range(2)]
        self.table = np.arange(batch, dtype=np.int32)[:, None]

    def one_call(self, x, rope, lengths, **steps) -> np.ndarray:
        return attention_step(*self.groups, self.stores[0], x, *rope, self.table, lengths, SCALE, **steps)

    def chain(
        self,
        x,
        rope,
        lengths,
        norm_weight=None,
        eps=0,
        residual=None,
        q_norm=None,
        k_norm=None,
        head_eps=0,
        slots=None,
        far=None,
        **observed,
    ) -> np.ndarray:
        rows = x if norm_weight is None else rms_norm(x, norm_weight, eps)
        q, k, v = (linear.matmul(rows) + bias for linear, bias in zip(self.linears, self.biases, strict=True))
        if q_norm is not None:
            q = rms_norm(q.reshape(-1, HEAD_DIM), q_norm, head_eps).reshape(q.shape)
            k = rms_norm(k.reshape(-1, HEAD_DIM), k_norm, head_eps).reshape(k.shape)
        batch, tokens = len(lengths), len(x) // len(lengths)
        q, k, v = (y.reshape(batch, tokens, -1, HEAD_DIM).swapaxes(1, 2) for y in (q, k, v))
        turned, out = np.empty(q.shape, np.float32), np.empty((batch, tokens, NUM_HEADS, HEAD_DIM), np.float32)
        self.stores[1].rope_append(q, k, v, *rope, self.table, lengths, turned, slots=slots)
        if far is not None:  # queries of sinks
            observed["sink_q"] = np.empty(q.shape, np.float32)
            scratch = KVStore("f32", batch, 32, NUM_KV_HEADS, HEAD_DIM)
            scratch.rope_append(q, k, v, *far, self.table, lengths, observed["sink_q"])
        self.stores[1].attend(turned, self.table, lengths, out.swapaxes(1, 2), SCALE, **observed)
        y = self.output.matmul(out.reshape(len(x), -1))
        return y if residual is None else y + residual


def rotation(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.outer(np.arange(first, first + count), 0.3 ** np.arange(HEAD_DIM // 2))
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((cos, cos), 1).astype(np.float32), np.concatenate((-sin, sin), 1).astype(np.float32)


class Net:
    def __init__(self, seed: int) -> None:
        rows = ((128, HIDDEN), (128, HIDDEN), (HIDDEN, 128))
        gate, up, down = (pack(*shape, seed + i) for i, shape in enumerate(rows))
        self.groups = LinearGroup([gate, up], [None, None]), LinearGroup([down], [None])
