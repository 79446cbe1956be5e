"""Halves of a decoder layer, and layers, in one call: equal bit for bit to the chain of single calls."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

import cpu_kernels
from cpu_kernels import DecoderLayer, KVStore, LinearGroup, PackedLinear, rms_norm, silu_mul
from qbench.kernels.case import Kernel, Problem, deviation
from qbench.kernels.linear import BF16, PATHS
from quant.formats import get_format

HIDDEN, FFN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 256, 512, 6, 2, 64
FORMAT, DOWN_FORMAT = "q4_k", "q6_k"  # as llama.cpp mixes them; both have the same instruction sets
EPS, SOFTMAX_SCALE = 1e-5, HEAD_DIM**-0.5
TOKENS = (1, 5, 63)
NUM_LAYERS = 2  # so that one reads the output of another
SEED = 20

Linears = list[PackedLinear]
Past = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def fused_steps() -> list[Kernel]:
    op = f"linear_{FORMAT}"
    problems = {
        "feed_forward": feed_forward_problems,
        "attention_step": attention_problems,
        "decoder_layers": layers_problems,
    }
    return [Kernel(name, of_step, op) for name, of_step in problems.items()]


@contextmanager
def at_most(isa: str) -> Iterator[None]:
    """These calls take no instruction set: nothing above this one is chosen within the block, and of paths one that it
    has, as few tokens would take the direct one.
    """
    forced = {"QBENCH_ISA": isa}
    if isa in PATHS["direct"]:
        forced["QBENCH_LINEAR_PATH"] = BF16
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


def net_of(rng: np.random.Generator) -> Linears:
    """gate, up and down"""
    gate, up = packed(FORMAT, FFN, HIDDEN, rng), packed(FORMAT, FFN, HIDDEN, rng)
    return [gate, up, packed(DOWN_FORMAT, HIDDEN, FFN, rng)]


def feed_forward_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    net = net_of(rng)
    norm = rng.standard_normal(HIDDEN).astype(np.float32)
    for num_tokens in TOKENS:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        run = partial(feed_forward, net, norm, x)
        yield Problem(f"norm, gate, up, down, residual M={num_tokens}", run, lambda y: deviation(y[0], y[1], 0.0))


def feed_forward(net: Linears, norm: np.ndarray, x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    """[2, M, K]: the one call, and the chain, which names the code that ran; both choose the same"""
    gate, up, down = net
    gate_up, last = LinearGroup([gate, up], [None, None]), LinearGroup([down], [None])
    with at_most(isa):
        fused = cpu_kernels.feed_forward(gate_up, last, x, norm, EPS, x)
        chain = feed_forward_chain(net, norm, x)
    (ran,) = {linear.last_isa for linear in net}
    return np.stack((fused, chain)), ran


def feed_forward_chain(net: Linears, norm: np.ndarray, x: np.ndarray) -> np.ndarray:
    gate, up, down = net
    rows = rms_norm(x, norm, EPS)
    return down.matmul(silu_mul(gate.matmul(rows), up.matmul(rows))) + x


def attention_linears(rng: np.random.Generator) -> Linears:
    """q, k, v and output"""
    q_size, kv_size = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    linears = [packed(FORMAT, size, HIDDEN, rng) for size in (q_size, kv_size, kv_size)]
    return [*linears, packed("q8_0", HIDDEN, q_size, rng)]  # rows of 384 cannot be cut into super-blocks


def attention_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED + 1)
    linears = attention_linears(rng)
    for num_tokens in TOKENS:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        run = partial(attention_step, linears, x)
        yield Problem(f"q, k, v, rotation, attention, output M={num_tokens}", run, lambda y: deviation(y[0], y[1], 0.0))


def attention_step(linears: Linears, x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    """[2, M, K]: the one call, and the chain, which names the code that ran; both choose the same"""
    past = past_of(len(x))
    stores = [new_store() for _ in range(2)]
    qkv, last = LinearGroup(linears[:3], [None] * 3), LinearGroup(linears[3:], [None])
    with at_most(isa):
        fused = cpu_kernels.attention_step(qkv, last, stores[0], x, *past, SOFTMAX_SCALE)
        chain = attention_chain(linears, x, stores[1], past)
    (ran,) = {linear.last_isa for linear in linears}
    return np.stack((fused, chain)), ran


def new_store() -> KVStore:
    return KVStore("f16", 1, 64, NUM_KV_HEADS, HEAD_DIM)


def past_of(num_tokens: int) -> Past:
    """Angles of the rotation, block table and ends of one sequence of new tokens"""
    angles = np.outer(np.arange(num_tokens), 0.3 ** np.arange(HEAD_DIM // 2))
    cos, sin = np.tile(np.cos(angles), 2), np.concatenate((-np.sin(angles), np.sin(angles)), 1)
    return cos.astype(np.float32), sin.astype(np.float32), np.zeros((1, 1), np.int32), np.array([num_tokens])


def attention_chain(linears: Linears, x: np.ndarray, store: KVStore, past: Past) -> np.ndarray:
    num_tokens, (_, _, table, ends) = len(x), past
    q, k, v = (linear.matmul(x).reshape(1, num_tokens, -1, HEAD_DIM).swapaxes(1, 2) for linear in linears[:3])
    turned, out = np.empty(q.shape, np.float32), np.empty((1, num_tokens, NUM_HEADS, HEAD_DIM), np.float32)
    store.rope_append(q, k, v, *past, turned)
    store.attend(turned, table, ends, out.swapaxes(1, 2), SOFTMAX_SCALE)
    return linears[3].matmul(out.reshape(num_tokens, -1))


@dataclass(frozen=True, slots=True)
class LayerParts:
    """q, k, v and output; gate, up and down; the norms before them, [HIDDEN] each"""

    linears: Linears
    net: Linears
    attention_norm: np.ndarray
    feed_forward_norm: np.ndarray


def layers_problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED + 2)
    norms = rng.standard_normal((NUM_LAYERS, 2, HIDDEN)).astype(np.float32)
    layers = [LayerParts(attention_linears(rng), net_of(rng), *pair) for pair in norms]
    for num_tokens in TOKENS:
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        label = f"{NUM_LAYERS} layers of norms, attention, net and residuals M={num_tokens}"
        yield Problem(label, partial(decoder_layers, layers, x), lambda y: deviation(y[0], y[1], 0.0))


def decoder_layers(layers: list[LayerParts], x: np.ndarray, isa: str) -> tuple[np.ndarray, str]:
    """As `attention_step`"""
    past, stores = past_of(len(x)), [[new_store() for _ in layers] for _ in range(2)]
    groups = [[one.linears[:3], one.linears[3:], one.net[:2], one.net[2:]] for one in layers]
    whole = [
        DecoderLayer(
            *(LinearGroup(group, [None] * len(group)) for group in of_layer),
            *(one.attention_norm, one.feed_forward_norm, EPS, HEAD_DIM),
        )
        for of_layer, one in zip(groups, layers, strict=True)
    ]
    with at_most(isa):
        fused = cpu_kernels.run_layers(whole, stores[0], x, *past, SOFTMAX_SCALE)
        chain = x
        for one, store in zip(layers, stores[1], strict=True):
            chain = chain + attention_chain(one.linears, rms_norm(chain, one.attention_norm, EPS), store, past)
            chain = feed_forward_chain(one.net, one.feed_forward_norm, chain)
    (ran,) = {linear.last_isa for one in layers for linear in (*one.linears, *one.net)}
    return np.stack((fused, chain)), ran
