"""Layers with latent attention as one call against the chain of their steps, bit for bit."""

from collections.abc import Callable

import numpy as np
import pytest
from support.attention import normal
from support.close import assert_close
from support.random_linear import random_qtensor

import cpu_kernels

HIDDEN, HEADS, NOPE, ROPE, VALUE, RANK, LOW = 128, 2, 32, 16, 32, 64, 96
NUM_EXPERTS, FFN, EPS, LATENT_EPS, SCALE, PAGES = 5, 64, 1e-5, 1e-6, 0.1, 3


def linear(rows: int, columns: int, seed: int, name: str = "q8_0") -> cpu_kernels.PackedLinear:
    qtensor = random_qtensor(name, rows, columns, seed=seed)
    return cpu_kernels.PackedLinear(name, qtensor.parts, qtensor.shape)


def group(*linears: cpu_kernels.PackedLinear) -> cpu_kernels.LinearGroup:
    return cpu_kernels.LinearGroup(list(linears), [None] * len(linears))


class Layer:
    """One of each kind, and the chain of single calls that it replaces."""

    def __init__(self, seed: int, *, has_low_rank: bool = False, is_routed: bool = False) -> None:
        q_size = HEADS * (NOPE + ROPE)
        self.down = group(linear(LOW if has_low_rank else q_size, HIDDEN, seed), linear(RANK + ROPE, HIDDEN, seed + 1))
        self.q_up = group(linear(q_size, LOW, seed + 2)) if has_low_rank else None
        self.output = group(linear(HIDDEN, HEADS * VALUE, seed + 3))
        self.heads = cpu_kernels.MlaHeads(normal(seed, HEADS, NOPE, RANK), normal(seed, HEADS, VALUE, RANK), "f16")
        self.norm, self.net_norm, self.kv_norm, self.q_norm = (normal(seed, n) for n in (HIDDEN, HIDDEN, RANK, LOW))
        if is_routed:
            each = [[linear(FFN, HIDDEN, seed + 9 * e + i) for e in range(NUM_EXPERTS)] for i in (4, 5)]
            down = [linear(HIDDEN, FFN, seed + 9 * e + 6) for e in range(NUM_EXPERTS)]
            router = cpu_kernels.Router(group(linear(NUM_EXPERTS - 1, HIDDEN, seed, "f32")), 2)
            self.net = (router, cpu_kernels.PackedExperts(*each, down, 1))
        else:
            self.net = (
                group(linear(FFN, HIDDEN, seed + 4), linear(FFN, HIDDEN, seed + 5)),
                group(linear(HIDDEN, FFN, seed)),
            )
        queries = {"q_norm": self.q_norm, "q_up": self.q_up} if has_low_rank else {}
        norms = (self.norm, self.kv_norm, self.net_norm, EPS, LATENT_EPS)
        self.whole = cpu_kernels.MlaLayer(self.down, self.heads, self.output, *self.net, *norms, **queries)

    def chain(
        self, x: np.ndarray, rows: np.ndarray, past: tuple[np.ndarray, ...], **observed: np.ndarray
    ) -> np.ndarray:
        q, latent = self.down.multiply(x, self.norm, EPS)
        if self.q_up is not None:
            (q,) = self.q_up.multiply(q, self.q_norm, LATENT_EPS)
        cos, sin, table, lengths = past
        where = ("f16", rows, table, lengths, SCALE)
        out = self.heads.attend(q, latent, self.kv_norm, LATENT_EPS, cos, sin, *where, **observed)
        (x,) = self.output.multiply(out, residual=x)
        router, experts = self.net
        if isinstance(experts, cpu_kernels.PackedExperts):
            return experts.feed_forward(router, x, self.net_norm, EPS, x)
        return cpu_kernels.feed_forward(*self.net, x, self.net_norm, EPS, x)


KINDS: dict[str, Callable[[], list[Layer]]] = {
    "dense": lambda: [Layer(1), Layer(31)],
    "routed": lambda: [Layer(1, is_routed=True)],
    "low-rank queries, dense, then routed": lambda: [
        Layer(1, has_low_rank=True),
        Layer(31, has_low_rank=True, is_routed=True),
    ],
}


def new_rows() -> np.ndarray:
    return np.full((PAGES, 16, RANK + ROPE), np.nan, np.float16)


def tokens(lengths: list[int], pages: list[int], seed: int = 5) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    turns = normal(seed, 2, len(lengths), ROPE)
    table = np.array(pages, np.int32)[:, None]
    return normal(seed + 1, len(lengths), HIDDEN), (*turns, table, np.array(lengths, np.int64))


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_is_step_after_step(kind):
    """A prompt of one sequence, then one token of it and three of another."""
    layers = KINDS[kind]()
    rows, chained = [new_rows() for _ in layers], [new_rows() for _ in layers]
    for x, past in (tokens([1, 2, 3], [2, 2, 2]), tokens([4, 1, 2, 3], [2, 0, 0, 0])):
        y = cpu_kernels.run_mla_layers([layer.whole for layer in layers], rows, "f16", x, *past, SCALE)
        for layer, its in zip(layers, chained, strict=True):
            x = layer.chain(x, its, past)
        assert_close(y, x)
    for got, expected in zip(rows, chained, strict=True):
        assert np.array_equal(got, expected, equal_nan=True)


def test_lengths_slots_and_mass_of_each_layer():
    """Layer 1 has evicted a token, whose slot the next one takes."""
    layers = KINDS["low-rank queries, dense, then routed"]()
    rows, chained = [new_rows() for _ in layers], [new_rows() for _ in layers]
    x, past = tokens([1, 2, 3], [2, 2, 2])
    for its in (rows, chained):
        cpu_kernels.run_mla_layers([layer.whole for layer in layers], its, "f16", x, *past, SCALE)
    x, (cos, sin, table, _) = tokens([4], [2])
    ends, slots = np.array([[4], [3]]), np.array([[3], [1]])
    mass, expected = (np.full((2, 1, 4), np.nan, np.float32) for _ in range(2))
    given = ([layer.whole for layer in layers], rows, "f16", x, cos, sin, table)
    y = cpu_kernels.run_mla_layers(*given, ends, SCALE, slots=slots, mass=list(mass))
    for i, layer in enumerate(layers):
        x = layer.chain(x, chained[i], (cos, sin, table, ends[i]), slots=slots[i], mass=expected[i])
    assert_close(y, x)
    assert_close(mass, expected)
    assert (mass[1, 0, 3], np.isclose(mass[0].sum(), HEADS)) == (0, True)
    for got, other in zip(rows, chained, strict=True):
        assert np.array_equal(got, other, equal_nan=True)


def test_no_tokens():
    layer, (x, past) = Layer(1, is_routed=True), tokens([], [])
    assert cpu_kernels.run_mla_layers([layer.whole], [new_rows()], "f16", x, *past, SCALE).shape == (0, HIDDEN)


def test_nothing_of_a_token_reaches_others():
    layer, (x, past) = Layer(1, is_routed=True), tokens([1, 1], [0, 1])
    clean = cpu_kernels.run_mla_layers([layer.whole], [new_rows()], "f16", x, *past, SCALE)
    x[0, 7] = np.nan
    y = cpu_kernels.run_mla_layers([layer.whole], [new_rows()], "f16", x, *past, SCALE)
    assert np.isnan(y[0]).all()
    assert_close(y[1], clean[1])


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"layers": []}, ValueError, "got 0 and 1, expected as many of both"),
        ({"layers": [None]}, TypeError, "got None, expected MlaLayer"),
        ({"x": np.zeros((1, 7), np.float32)}, ValueError, "expected 128 columns"),
        ({"x": np.zeros((1, HIDDEN))}, TypeError, "x: got float64"),
        ({"cos": np.zeros((2, ROPE), np.float32)}, ValueError, "cos: got"),
        ({"rows": [np.zeros((1, 16, RANK), np.float16)]}, ValueError, "expected contiguous rows of 80"),
        ({"format": "q8"}, ValueError, "expected one of f32, f16, bf16, fp8, int8, int4"),
        ({"ends": np.array([17])}, ValueError, "ends: got 17, expected 1 to 16"),
        ({"block_table": np.array([[PAGES]], np.int32)}, ValueError, "got page 3, expected 0 to 2"),
        ({"ends": np.array([[1], [1]])}, ValueError, "ends: got 2 entries, expected one for each of 1 layers"),
        ({"slots": np.array([[1]])}, ValueError, "slots: got 1, expected 0 to 0"),
        ({"mass": [np.zeros((1, 0), np.float32)]}, ValueError, "mass: got"),
    ],
)
def test_bad_calls(changes, error, message):
    x, (cos, sin, table, lengths) = tokens([1], [0])
    good = {"layers": [Layer(1).whole], "rows": [new_rows()], "format": "f16", "x": x, "cos": cos, "sin": sin}
    good |= {"block_table": table, "ends": lengths, "softmax_scale": SCALE}
    cpu_kernels.run_mla_layers(**good)
    with pytest.raises(error, match=message):
        cpu_kernels.run_mla_layers(**good | changes)


def test_parts_that_do_not_go_together():
    layer = Layer(1)
    parts = (layer.down, layer.heads, layer.output, *layer.net)
    norms = (layer.norm, layer.kv_norm, layer.net_norm, EPS, LATENT_EPS)
    with pytest.raises(ValueError, match="expected 2 linears in down"):
        cpu_kernels.MlaLayer(group(linear(96, HIDDEN, 1)), *parts[1:], *norms)
    with pytest.raises(ValueError, match="got q_norm or q_up, expected both or neither"):
        cpu_kernels.MlaLayer(*parts, *norms, q_norm=layer.q_norm)
    with pytest.raises(ValueError, match="which do not go with 2 heads of rank 64"):
        cpu_kernels.MlaLayer(*parts, *norms, q_norm=layer.q_norm, q_up=group(linear(8, LOW, 1)))
    with pytest.raises(ValueError, match=r"kv_norm: got float32 \[128\]"):
        cpu_kernels.MlaLayer(*parts, layer.norm, layer.norm, *norms[2:])
    with pytest.raises(ValueError, match="another width"):
        net = (group(linear(FFN, 32, 1), linear(FFN, 32, 2)), group(linear(32, FFN, 3)))
        cpu_kernels.MlaLayer(*parts[:3], *net, *norms)
