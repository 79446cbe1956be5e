"""Halves of a decoder layer in one call: equal bit for bit to the chain of single calls."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

import cpu_kernels
from cpu_kernels import KVStore, LinearGroup, PackedLinear, rms_norm, silu_mul
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from qbench.kernels.linear import PATHS
from quant.formats import get_format

HIDDEN, FFN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 256, 512, 6, 2, 64
FORMAT, DOWN_FORMAT = "q4_k", "q6_k"  # as llama.cpp mixes them; both have the same instruction sets
EPS, SOFTMAX_SCALE = 1e-5, HEAD_DIM**-0.5
TOKENS = (1, 5, 63)
SEED = 20


def fused_steps() -> list[Kernel]:
    op = f"linear_{FORMAT}"
    return [Kernel("feed_forward", feed_forward_problems, op), Kernel("attention_step", attention_problems, op)]


@contextmanager
def at_most(isa: str) -> Iterator[None]:
    """These calls take no instruction set: nothing above this one is chosen within the block, and of paths one that it
    has, as few tokens would take the direct one.
    """
    forced = {"QBENCH_ISA": isa}
    if isa in PATHS["direct"]:
        forced["QBENCH_LINEAR_PATH"] = "tile"
    before = {name: os.environ.get(name) for name in forced}
    os.environ.update(forced)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def packed(format_name: str, num_rows: int, row_size: int, rng: np.random.Generator) -> PackedLinear:
    qtensor = get_format(format_name).quantize(rng.standard_normal((num_rows, row_size)).astype(np.float32))
    return PackedLinear(format_name, qtensor.parts, qtensor.shape)


def feed_forward_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    gate, up = packed(FORMAT, FFN, HIDDEN, rng), packed(FORMAT, FFN, HIDDEN, rng)
    net = gate, up, packed(DOWN_FORMAT, HIDDEN, FFN, rng)
    norm = rng.standard_normal(HIDDEN).astype(np.float32)
    for num_tokens in TOKENS:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        run = partial(feed_forward, net, norm, x)
        yield Problem(f"norm, gate, up, down, residual M={num_tokens}", run, lambda y: deviation(y[0], y[1], 0.0))


def feed_forward(net: tuple, norm: np.ndarray, x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    """[2, M, K]: the one call, and the chain, which names the code that ran; both choose the same"""
    gate, up, down = net
    gate_up, last = LinearGroup([gate, up], [None, None]), LinearGroup([down], [None])
    with at_most(isa):
        fused = cpu_kernels.feed_forward(gate_up, last, x, norm, EPS, x)
        rows = rms_norm(x, norm, EPS)
        chain = down.matmul(silu_mul(gate.matmul(rows), up.matmul(rows))) + x
    (ran,) = {linear.last_isa for linear in net}
    return np.stack((fused, chain)), ran


def attention_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED + 1)
    q_size, kv_size = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    linears = [packed(FORMAT, size, HIDDEN, rng) for size in (q_size, kv_size, kv_size)]
    linears.append(packed("q8_0", HIDDEN, q_size, rng))  # rows of 384 cannot be cut into super-blocks
    for num_tokens in TOKENS:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        run = partial(attention_step, linears, x)
        yield Problem(f"q, k, v, rotation, attention, output M={num_tokens}", run, lambda y: deviation(y[0], y[1], 0.0))


def attention_step(linears: list[PackedLinear], x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    """[2, M, K]: the one call, and the chain, which names the code that ran; both choose the same"""
    num_tokens, table = len(x), np.zeros((1, 1), np.int32)
    ends = np.array([num_tokens])
    angles = np.outer(np.arange(num_tokens), 0.3 ** np.arange(HEAD_DIM // 2))
    cos, sin = np.tile(np.cos(angles), 2), np.concatenate((-np.sin(angles), np.sin(angles)), 1)
    rope = cos.astype(np.float32), sin.astype(np.float32)
    stores = [KVStore("f16", 1, 64, NUM_KV_HEADS, HEAD_DIM) for _ in range(2)]
    qkv, last = LinearGroup(linears[:3], [None] * 3), LinearGroup(linears[3:], [None])
    with at_most(isa):
        fused = cpu_kernels.attention_step(qkv, last, stores[0], x, *rope, table, ends, SOFTMAX_SCALE)
        q, k, v = (linear.matmul(x).reshape(1, num_tokens, -1, HEAD_DIM).swapaxes(1, 2) for linear in linears[:3])
        turned, out = np.empty(q.shape, np.float32), np.empty((1, num_tokens, NUM_HEADS, HEAD_DIM), np.float32)
        stores[1].rope_append(q, k, v, *rope, table, ends, turned)
        stores[1].attend(turned, table, ends, out.swapaxes(1, 2), SOFTMAX_SCALE)
        chain = linears[3].matmul(out.reshape(num_tokens, -1))
    (ran,) = {linear.last_isa for linear in linears}
    return np.stack((fused, chain)), ran
