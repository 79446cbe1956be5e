"""Fused calls under a cache policy: ends, slots and mass of each layer against single calls, bit for bit."""

import numpy as np
import pytest
from support.close import assert_close
from support.fused_layers import EPS, HEAD_DIM, HIDDEN, NUM_KV_HEADS, SCALE, Layer, Net, random, rotation

from cpu_kernels import DecoderLayer, feed_forward, run_layers

BATCH, PROMPT, PAGE, NUM_LAYERS = 2, 20, 32, 3
WEIGHTS = random(HIDDEN), random(HIDDEN, seed=1)
SLOTS = np.array([[3, 11], [0, 7]])
HEAD_ENDS = np.array([[PROMPT, 5], [12, 17]])


def empty_mass() -> np.ndarray:
    return np.full((BATCH, NUM_KV_HEADS, PAGE), np.nan, np.float32)


def prompt(seed: int = 0) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
    return random(BATCH * PROMPT, HIDDEN, seed=seed), rotation(0, PROMPT), np.full(BATCH, PROMPT)


def assert_mass(mass: np.ndarray, expected: np.ndarray, num_queries: int) -> None:
    assert_close(mass, expected)
    total = np.full((BATCH, NUM_KV_HEADS), 3 * num_queries)  # heads of a group
    assert_close(expected.sum(-1), total, atol=total * 32 * 2.0**-22)


# ---- one layer


@pytest.mark.parametrize("kv_format", ["f32", "f16", "int8"])
def test_attention_step_is_the_chain_of_single_calls(kv_format):
    layer, (x, rope, ends) = Layer(BATCH, kv_format), prompt()
    mass = empty_mass(), empty_mass()
    y = layer.one_call(x, rope, ends, mass=mass[0], mass_queries=4)
    assert_close(y, layer.chain(x, rope, ends, mass=mass[1], mass_queries=4))
    assert_mass(*mass, 4)
    for seed, options in enumerate(({"slots": SLOTS}, {"slots": SLOTS + 1}, {})):
        new, rope, mass = random(BATCH, HIDDEN, seed=seed), rotation(PROMPT + seed, 1), (empty_mass(), empty_mass())
        held = ends if options else HEAD_ENDS
        y = layer.one_call(new, rope, held, mass=mass[0], **options)
        assert_close(y, layer.chain(new, rope, held, mass=mass[1], **options))
        assert_mass(*mass, 1)


@pytest.mark.parametrize("kv_format", ["f32", "f16", "int8"])
def test_sinks_are_met_by_other_angles(kv_format):
    """Prompts whose last queries see 3 sinks and a window of 5, then single tokens."""
    layer, (x, *_) = Layer(BATCH, kv_format), prompt()
    for new, first, count in ((x, 0, PROMPT), (x[:BATCH], PROMPT, 1), (x[1 : BATCH + 1], PROMPT + 1, 1)):
        near, far, ends = rotation(first, count), rotation(first + 40, count), np.full(BATCH, first + count)
        mass = empty_mass(), empty_mass()
        sinks = {"sinks": 3, "sink_cos": far[0], "sink_sin": far[1]}
        y = layer.one_call(new, near, ends, mass=mass[0], window=5, **sinks)
        expected = layer.chain(new, near, ends, mass=mass[1], window=5, sinks=3, far=far)
        assert_close(y, expected)
        assert_close(*mass)
        nearer = layer.one_call(new, near, ends, window=5, sinks=3, sink_cos=near[0], sink_sin=near[1])
        assert np.abs(nearer - y).max() > 1e-3


def test_attention_step_checks_its_sinks():
    layer, (x, rope, ends) = Layer(BATCH), prompt()
    with pytest.raises(ValueError, match="sinks: got 3, expected 0, or more with sink_cos and sink_sin"):
        layer.one_call(x, rope, ends, sinks=3)
    with pytest.raises(ValueError, match="sinks: got 0, expected 0, or more"):
        layer.one_call(x, rope, ends, sink_cos=rope[0], sink_sin=rope[1])
    with pytest.raises(ValueError, match=r"cos: got float32 \[1, 32\], expected .*\[20, 32\]"):
        layer.one_call(x, rope, ends, sinks=3, sink_cos=rope[0][:1], sink_sin=rope[1])
    with pytest.raises(ValueError, match="sinks: got 3 for format kivi4, expected 0"):
        Layer(BATCH, "kivi4").one_call(x, rope, ends, sinks=3, sink_cos=rope[0], sink_sin=rope[1])


def test_attention_step_checks_its_arguments():
    layer, (x, rope, ends) = Layer(BATCH), prompt()
    with pytest.raises(ValueError, match="slots: got 20 new tokens for a sequence, expected 1"):
        layer.one_call(x, rope, ends, slots=SLOTS)
    with pytest.raises(ValueError, match=r"mass: got .* expected contiguous float32 \[2, 2, 20 or more\]"):
        layer.one_call(x, rope, ends, mass=empty_mass()[:1])
    with pytest.raises(ValueError, match=r"ends: got int64 \[1, 2, 2\], expected int64 \[B\] or \[B, G\]"):
        layer.one_call(x, rope, HEAD_ENDS[None])


# ---- layers


class Layers:
    """NUM_LAYERS layers that hold a prompt, once for one call and once for a call per layer."""

    def __init__(self) -> None:
        self.layers = [Layer(BATCH, "f16") for _ in range(NUM_LAYERS)]
        self.nets = [Net(10 * i) for i in range(NUM_LAYERS)]
        self.whole = [
            DecoderLayer(*layer.groups, *net.groups, *WEIGHTS, EPS, HEAD_DIM)
            for layer, net in zip(self.layers, self.nets, strict=True)
        ]

    def one_call(self, x, rope, ends, **options) -> np.ndarray:
        stores = [layer.stores[1] for layer in self.layers]
        return run_layers(self.whole, stores, x, *rope, self.layers[0].table, ends, SCALE, **options)

    def one_by_one(self, x, rope, ends, options) -> np.ndarray:
        """ends, options: one per layer"""
        for layer, net, its_ends, its in zip(self.layers, self.nets, ends, options, strict=True):
            x = layer.one_call(x, rope, its_ends, norm_weight=WEIGHTS[0], eps=EPS, residual=x, **its)
            x = feed_forward(*net.groups, x, WEIGHTS[1], EPS, x)
        return x

    def fill(self) -> None:
        x, rope, ends = prompt()
        self.one_call(x, rope, ends)
        self.one_by_one(x, rope, [ends] * NUM_LAYERS, [{}] * NUM_LAYERS)


def test_a_prompt_whose_last_queries_are_observed():
    layers, (x, rope, ends) = Layers(), prompt()
    mass, expected = ([empty_mass() for _ in range(NUM_LAYERS)] for _ in range(2))
    y = layers.one_call(x, rope, ends, mass=mass, mass_queries=4)
    assert_close(y, layers.one_by_one(x, rope, [ends] * NUM_LAYERS, [{"mass": m, "mass_queries": 4} for m in expected]))
    for pair in zip(mass, expected, strict=True):
        assert_mass(*pair, 4)


def test_a_step_in_which_each_layer_holds_its_own_tokens():
    layers, x, rope = Layers(), random(BATCH, HIDDEN, seed=3), rotation(PROMPT, 1)
    layers.fill()
    ends = [np.array([PROMPT, PROMPT]), np.array([12, 12]), np.array([8, 15])]
    slots = [SLOTS, None, SLOTS[::-1].copy()]
    mass, expected = ([empty_mass(), None, empty_mass()] for _ in range(2))
    options = [{"slots": s, "mass": m} for s, m in zip(slots, expected, strict=True)]
    y = layers.one_call(x, rope, np.stack(ends), slots=slots, mass=mass)
    assert_close(y, layers.one_by_one(x, rope, ends, options))
    assert_mass(mass[0], expected[0], 1)
    assert_mass(mass[2], expected[2], 1)
    last = layers.one_call(x, rope, ends, slots=slots, last_only=True)  # the same tokens again
    assert_close(last, y)


def test_layers_with_sinks():
    layers, x, rope, far = Layers(), random(BATCH, HIDDEN, seed=3), rotation(PROMPT, 1), rotation(40, 1)
    layers.fill()
    sinks = {"sinks": 3, "sink_cos": far[0], "sink_sin": far[1], "window": 5}
    expected = layers.one_by_one(x, rope, [ENDS] * NUM_LAYERS, [sinks] * NUM_LAYERS)
    assert_close(layers.one_call(x, rope, ENDS, **sinks), expected)


def test_ends_of_each_head():
    layers, x, rope = Layers(), random(BATCH, HIDDEN, seed=3), rotation(PROMPT, 1)
    layers.fill()
    ends = [HEAD_ENDS, np.full(BATCH, 9), HEAD_ENDS[::-1].copy()]
    expected = layers.one_by_one(x, rope, ends, [{}] * NUM_LAYERS)
    assert_close(layers.one_call(x, rope, ends), expected)
    with_slots = np.stack([SLOTS % 5] * NUM_LAYERS)
    expected = layers.one_by_one(x, rope, ends, [{"slots": s} for s in with_slots])
    assert_close(layers.one_call(x, rope, ends, slots=with_slots), expected)


def test_a_varlen_call():
    layers, x, rope, cu_seqlens = Layers(), random(6, HIDDEN, seed=3), rotation(0, 6), np.array([0, 1, 6])
    layers.fill()
    ends = np.array([[PROMPT, 9], [PROMPT, 8], [1, 7]])
    mass, expected = ([empty_mass() for _ in range(NUM_LAYERS)] for _ in range(2))
    options = [{"cu_seqlens": cu_seqlens, "mass": m} for m in expected]
    y = layers.one_call(x, rope, ends, cu_seqlens=cu_seqlens, mass=mass)
    assert_close(y, layers.one_by_one(x, rope, ends, options))
    for got, wanted in zip(mass, expected, strict=True):
        assert_close(got, wanted)
        assert np.isfinite(wanted).all()


ENDS = np.full(BATCH, PROMPT)


@pytest.mark.parametrize(
    "ends, options, error, message",
    [
        ([ENDS] * 2, {}, ValueError, "ends: got 2 entries, expected one for each of 3 layers"),
        (np.stack([ENDS] * 4), {}, ValueError, "ends: got 4 entries"),
        ([ENDS, None, ENDS], {}, TypeError, "ends: got None for layer 1"),
        ([ENDS, ENDS, 3], {}, TypeError, "ends: expected an array for layer 2"),
        ([ENDS, ENDS, ENDS[:1]], {}, ValueError, "expected a row and a length for each of 2 sequences"),
        (None, {}, TypeError, "ends|incompatible function arguments"),
        (ENDS, {"slots": [SLOTS]}, ValueError, "slots: got 1 entries, expected one for each of 3 layers"),
        (ENDS, {"slots": SLOTS}, ValueError, "slots: got 2 entries"),
        (ENDS, {"slots": [SLOTS, None, SLOTS - 1]}, ValueError, "slots: got -1, expected 0 to 19"),
        (ENDS, {"mass": empty_mass()}, ValueError, "mass: got 2 entries"),
        (ENDS, {"mass": [None, None, empty_mass()[..., :19].copy()]}, ValueError, "mass: got 19 slots"),
        (ENDS, {"mass_queries": -1}, ValueError, "mass_queries: got -1"),
    ],
)
def test_bad_arguments(ends, options, error, message):
    layers = Layers()
    layers.fill()
    with pytest.raises(error, match=message):
        layers.one_call(random(BATCH, HIDDEN), rotation(PROMPT, 1), ends, **options)
