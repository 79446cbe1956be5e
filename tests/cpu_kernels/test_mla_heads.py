"""The up-projections of latent attention and a whole step of it against their definitions, under every ISA."""

import numpy as np
import pytest
import torch
from support.attention import normal
from support.close import assert_close
from support.spoilers import assert_tells

import cpu_kernels
from cpu_kernels.attention import multiplies_latents_in
from cpu_kernels.linear_float import round_to_bf16_ref
from cpu_kernels.mla import (
    MlaHeads,
    MlaStep,
    absorb_ref,
    latent_queries_ref,
    latent_row_ref,
    mla_step_ref,
    round_heads_ref,
    values_of_ref,
)
from cpu_kernels.mla_bound import mla_step_bound, product_bound
from quant.kv.latent_codes import LATENT_CODES

OP = "mla_heads"
HEADS, NOPE, ROPE, VALUE, RANK = 3, 24, 16, 40, 128
FORMATS = {"f32": np.float32, "f16": np.float16, "bf16": torch.bfloat16}
HEADS_FORMATS = (*FORMATS, "int8")
EPS, SCALE = 1e-6, 0.1


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    if name == "bf16":
        return torch.from_numpy(x).bfloat16().float().numpy()
    return x.astype(FORMATS[name]).astype(np.float32)


def heads(name: str, exact: bool = False, **sizes) -> tuple[MlaHeads, np.ndarray, np.ndarray]:
    shape = {"heads": HEADS, "nope": NOPE, "value": VALUE, "rank": RANK} | sizes
    keys = normal(1, shape["heads"], shape["nope"], shape["rank"]) / np.float32(shape["nope"] ** 0.5)  # scores of ~1
    values = normal(2, shape["heads"], shape["value"], shape["rank"])
    if name == "int8":
        return MlaHeads(keys, values, name, exact), round_heads_ref(keys, 1), round_heads_ref(values, 2)
    return MlaHeads(keys, values, name, exact), rounded(keys, name), rounded(values, name)


def assert_product(got: np.ndarray, definition, x: np.ndarray, weight: np.ndarray) -> None:
    """got [M, H * outputs]"""
    expected = definition(x, weight)
    assert_tells(got.reshape(expected.shape), expected, product_bound(definition, x, weight))


@pytest.mark.parametrize("name", HEADS_FORMATS)
@pytest.mark.parametrize("num_tokens", [1, 3, 4, 7, 63])
def test_products_match_the_definition(isa, name, num_tokens):
    packed, keys, values = heads(name)
    q, latents = normal(3, num_tokens, HEADS, NOPE), normal(4, num_tokens, HEADS, RANK)
    got = packed.absorb(q.reshape(num_tokens, -1), isa=isa)
    assert packed.last_isa == isa
    assert_product(got, absorb_ref, q, keys)
    assert_product(packed.values_of(latents.reshape(num_tokens, -1), isa=isa), values_of_ref, latents, values)


@pytest.mark.parametrize("name", ["f16", "int8"])
@pytest.mark.parametrize("sizes", [{"rank": 1, "nope": 1, "value": 1}, {"rank": 131, "nope": 63, "value": 65}])
def test_odd_sizes(isa, sizes, name):
    packed, keys, values = heads(name, **sizes)
    q, latents = normal(3, 5, HEADS, sizes["nope"]), normal(4, 5, HEADS, sizes["rank"])
    assert_product(packed.absorb(q.reshape(5, -1), isa=isa), absorb_ref, q, keys)
    assert_product(packed.values_of(latents.reshape(5, -1), isa=isa), values_of_ref, latents, values)


@pytest.mark.parametrize("name", ["f16", "int8"])
def test_a_tokens_products_do_not_depend_on_the_others_nor_on_threads(isa, name):
    packed, _, _ = heads(name)
    q = normal(3, 9, HEADS * NOPE)
    before = cpu_kernels.get_num_threads()
    try:
        cpu_kernels.set_num_threads(1)
        alone = np.concatenate([packed.absorb(q[i : i + 1], isa=isa) for i in range(9)])
        cpu_kernels.set_num_threads(3)
        assert_close(packed.absorb(q, isa=isa), alone)
    finally:
        cpu_kernels.set_num_threads(before)


def test_no_tokens_and_non_finite_values(isa):
    packed, _, _ = heads("f32")
    assert packed.absorb(np.empty((0, HEADS * NOPE), np.float32), isa=isa).shape == (0, HEADS * RANK)
    q = normal(3, 2, HEADS * NOPE)
    q[0, NOPE] = np.nan  # of head 1
    out = packed.absorb(q, isa=isa).reshape(2, HEADS, RANK)
    assert np.isnan(out[0, 1]).all()
    assert np.isfinite(np.delete(out[0], 1, 0)).all()
    assert np.isfinite(out[1]).all()


@pytest.mark.parametrize("name, bytes", [("f16", 2 * 256 * 512), ("int8", 256 * 512 + 4 * (512 + 4 * 128))])
def test_bytes_match_the_format(name, bytes):
    packed, _, _ = heads(name, rank=512, nope=128, value=128)
    assert packed.nbytes == HEADS * bytes


def test_int8_is_as_fine_as_its_scales():
    """Half a step of its own group's, whatever is large in another; of zeros nothing is left over."""
    weight = normal(8, 1, 300, 16)
    weight[0, :128, 3] *= 1000
    weight[0, 128:256, 5] = 0
    steps = [np.abs(group).max(0) / 127 for group in np.split(weight[0], [128, 256])]
    step = np.repeat(steps, [128, 128, 44], 0)
    packed = MlaHeads(weight, normal(9, 1, 4, 16), "int8")
    kept = packed.absorb(np.eye(300, dtype=np.float32))
    assert_close(kept, round_heads_ref(weight, 1)[0], rtol=2.0**-23)
    assert (np.abs(kept - weight[0]) <= step / 2 * (1 + 2.0**-20)).all()
    assert (kept[128:256, 5] == 0).all()


class Sequences:
    """Rows of B sequences in shuffled pages of 16, NaN at slots without a token."""

    def __init__(self, name: str, lengths: list[int], rank: int = RANK, rope: int = ROPE) -> None:
        self.name, self.lengths, self.rank = name, np.array(lengths), rank
        pages = -(-max(lengths) // 16)
        order = np.random.default_rng(7).permutation(len(lengths) * pages + 2)
        self.table = order[: len(lengths) * pages].reshape(len(lengths), pages).astype(np.int32)
        self.rows = self.encoded(np.full((len(order), 16, rank + rope), np.nan, np.float32))

    def encoded(self, rows: np.ndarray) -> np.ndarray:
        if self.name in LATENT_CODES:
            x = torch.from_numpy(rows)
            return LATENT_CODES[self.name].encode(x[..., : self.rank], x[..., self.rank :]).numpy()
        if self.name == "bf16":
            return torch.from_numpy(rows).bfloat16().view(torch.uint16).numpy()
        return rows.astype(FORMATS[self.name])

    def held(self, b: int) -> np.ndarray:
        """[S, width] of one sequence"""
        return self.rows[self.table[b]].reshape(-1, self.rows.shape[-1])[: self.lengths[b]]

    def read(self, b: int) -> np.ndarray:
        """[S, R + D] float32 as they are read"""
        rows = self.held(b)
        if self.name in LATENT_CODES:
            return torch.cat(LATENT_CODES[self.name].decode(torch.from_numpy(rows.copy()), self.rank), -1).numpy()
        if self.name == "bf16":
            return torch.from_numpy(rows.copy()).view(torch.bfloat16).float().numpy()
        return rows.astype(np.float32)


def angles(first: int, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    turns = np.outer(np.arange(first, first + count), 10000.0 ** (-np.arange(0, size, 2) / size))
    cos, sin = np.cos(turns), np.sin(turns)
    return np.concatenate((cos, cos), 1).astype(np.float32), np.concatenate((-sin, sin), 1).astype(np.float32)


ROWS = [("f32", 128, 16), ("f16", 128, 16), ("bf16", 64, 16), ("fp8", 512, 64), ("int8", 64, 32), ("int4", 192, 16)]


@pytest.mark.parametrize("name, rank, rope", ROWS)
@pytest.mark.parametrize("counts", [(19, 1), (1, 1, 1), (17, 3), (45,)], ids=str)  # 2 * 45: more than are held at once
@pytest.mark.parametrize("exact", [False, True], ids=["", "exact"])
def test_steps_match_the_definition(name, rank, rope, counts, exact):
    packed, keys, values = heads("f16", exact, rank=rank)
    arithmetic = "fp32" if exact else multiplies_latents_in(name)
    past, norm, held = Sequences(name, [sum(counts)] * 2, rank, rope), normal(5, rank) + 1, 0
    for count in counts:
        q, latent = normal(6, 2 * count, HEADS * (NOPE + rope)), normal(7 + held, 2 * count, rank + rope)
        cos, sin = angles(held, count, rope)
        each = (np.repeat(past.table, count, 0), np.tile(np.arange(held + 1, held + count + 1), 2))
        held += count
        past.lengths = np.full(2, held)
        turns = (np.tile(cos, (2, 1)), np.tile(sin, (2, 1)))
        out = packed.attend(q, latent, norm, EPS, *turns, name, past.rows, *each, SCALE)
        for b in range(2):
            new, rows = slice(b * count, (b + 1) * count), past.read(b)
            stored = past.encoded(latent_row_ref(latent[new], norm, EPS, cos, sin)[None])[0]
            assert_same_rows(past.held(b)[-count:], stored, rope)
            by_head = q[new].reshape(count, HEADS, -1)
            multiplied = round_to_bf16_ref(rows) if arithmetic == "bf16" else rows
            given = MlaStep(by_head, multiplied, (keys, values), (cos, sin), SCALE, arithmetic)
            assert_tells(out[new].reshape(count, HEADS, VALUE), mla_step_ref(given), mla_step_bound(given))


def assert_same_rows(kept: np.ndarray, stored: np.ndarray, rope: int) -> None:
    """Equal except for the rotated key at the end: its rotation is fused here, and in float64 there."""
    rotated = 2 * rope if kept.dtype == np.uint8 else rope
    assert np.array_equal(kept[:, :-rotated], stored[:, :-rotated])


def test_a_window_hides_the_tokens_before_it():
    packed, _, _ = heads("f32")
    q, latent = normal(6, 30, HEADS * (NOPE + ROPE)), normal(7, 30, RANK + ROPE)
    turns, norm = angles(0, 30, ROPE), normal(5, RANK)

    def attend(first: int, window: int) -> np.ndarray:
        """Outputs of the tokens from `first` on."""
        past = Sequences("f32", [30])
        each = (np.repeat(past.table, 30 - first, 0), np.arange(1, 31 - first))
        new = (q[first:], latent[first:], norm, EPS, *(angle[first:] for angle in turns))
        return packed.attend(*new, "f32", past.rows, *each, SCALE, window)

    assert_close(attend(0, 30), attend(0, 0))
    assert_close(attend(0, 7)[-1], attend(23, 0)[-1], atol=2.0**-16)
    assert np.abs(attend(0, 7)[-1] - attend(0, 0)[-1]).max() > 2.0**-10


@pytest.mark.parametrize("name", ["f32", "int8"])
def test_slots_and_mass(name):
    """80 tokens, more than are held at once: of the last one, which takes slot 5, the weights of the definition."""
    packed, keys, _ = heads("f32", exact=True)
    past, norm = Sequences(name, [80]), normal(5, RANK)
    q, latent, turns = normal(6, 80, HEADS * (NOPE + ROPE)), normal(7, 80, RANK + ROPE), angles(0, 80, ROPE)
    mass = np.full((80, 96), np.nan, np.float32)
    each = (np.repeat(past.table, 80, 0), np.arange(1, 81))
    plain = packed.attend(q, latent, norm, EPS, *turns, name, past.rows.copy(), *each, SCALE)
    out = packed.attend(q, latent, norm, EPS, *turns, name, past.rows, *each, SCALE, mass=mass)
    assert np.array_equal(out, plain), "weights change no result"
    assert_close(mass.sum(1), np.full(80, HEADS, np.float32), rtol=2.0**-16)
    assert (mass[0, 1:] == 0).all() and (mass[:, 80:] == 0).all()

    before, one = past.read(0).copy(), np.full((1, 80), np.nan, np.float32)
    last = [x[-1:] for x in (q, latent)]
    new = [x[-1:] for x in turns]
    slots = np.array([5])
    place = (past.table, np.array([80]))
    packed.attend(*last, norm, EPS, *new, name, past.rows, *place, SCALE, slots=slots, mass=one)
    rows = past.read(0)
    changed = (rows != before).any(1)
    assert changed.nonzero()[0].tolist() == [5]
    assert np.array_equal(rows[5], before[79])
    kept, rotated = latent_queries_ref(last[0].reshape(1, HEADS, -1), keys, *new)
    scores = SCALE * np.concatenate((kept, rotated), 2)[0] @ rows.T.astype(np.float64)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    assert_close(one[0], (weights / weights.sum(1, keepdims=True)).sum(0).astype(np.float32), rtol=2.0**-14)


GOOD = {
    "q": np.zeros((1, HEADS * (NOPE + ROPE)), np.float32),
    "latent": np.zeros((1, RANK + ROPE), np.float32),
    "norm": np.ones(RANK, np.float32),
    "eps": EPS,
    "cos": np.zeros((1, ROPE), np.float32),
    "sin": np.zeros((1, ROPE), np.float32),
    "format": "f16",
    "rows": np.zeros((2, 16, RANK + ROPE), np.float16),
    "block_table": np.zeros((1, 1), np.int32),
    "ends": np.array([3]),
    "softmax_scale": 1.0,
}


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"q": np.zeros((1, 7), np.float32)}, ValueError, r"q, latent: got float32 \[1, 7\]"),
        ({"q": np.zeros((1, HEADS * (NOPE + ROPE)))}, TypeError, "q: got float64"),
        ({"latent": np.zeros((1, RANK), np.float32)}, ValueError, "D even"),
        ({"latent": np.zeros((2, RANK + ROPE), np.float32)}, ValueError, "q, latent"),
        ({"norm": np.ones(3, np.float32)}, ValueError, r"norm: got float32 \[3\]"),
        ({"cos": np.zeros((2, ROPE), np.float32)}, ValueError, "cos: got"),
        ({"rows": np.zeros((2, 16, RANK), np.float16)}, ValueError, "expected contiguous rows of 144"),
        ({"rows": np.zeros((2, 16, RANK + ROPE), np.float32)}, TypeError, "latents: got float32"),
        ({"ends": np.array([17])}, ValueError, "ends: got 17, expected 1 to 16"),
        ({"ends": np.array([0])}, ValueError, "ends: got 0"),
        ({"ends": np.empty(0, np.int64)}, ValueError, "a row and a length for each of 1 sequences"),
        ({"block_table": np.array([[2]], np.int32)}, ValueError, "got page 2, expected 0 to 1"),
        ({"slots": np.array([3])}, ValueError, "slots: got 3, expected 0 to 2"),
        ({"slots": np.array([-1])}, ValueError, "slots: got -1"),
        ({"slots": np.array([0, 1])}, ValueError, "expected one for each of 1 tokens"),
        ({"slots": np.array([0.0])}, TypeError, "slots: got float64"),
        ({"mass": np.zeros((1, 2), np.float32)}, ValueError, "mass: got 2 slots, expected 3 or more"),
        ({"mass": np.zeros((2, 3), np.float32)}, ValueError, "mass: got"),
    ],
)
def test_bad_calls(changes, error, message):
    packed, _, _ = heads("f16")
    packed.attend(**GOOD)
    with pytest.raises(error, match=message):
        packed.attend(**GOOD | changes)


def test_rows_must_be_writable():
    packed, _, _ = heads("f16")
    rows = np.zeros((2, 16, RANK + ROPE), np.float16)
    rows.flags.writeable = False
    with pytest.raises(TypeError, match="rows: expected a writable array"):
        packed.attend(**GOOD | {"rows": rows})


@pytest.mark.parametrize(
    "keys, values, name, error, message",
    [
        ((2, 3, 8), (2, 4, 8), "q4", ValueError, "expected one of f32, f16, bf16, int8"),
        ((2, 3, 8), (2, 4, 9), "f32", ValueError, "as many heads of one rank"),
        ((2, 3, 8), (1, 4, 8), "f32", ValueError, "as many heads of one rank"),
        ((2, 24), (2, 4, 8), "f32", ValueError, r"keys: got float32 \[2, 24\]"),
        ((2, 0, 8), (2, 4, 8), "f32", ValueError, "nothing empty"),
    ],
)
def test_bad_matrices(keys, values, name, error, message):
    with pytest.raises(error, match=message):
        MlaHeads(np.zeros(keys, np.float32), np.zeros(values, np.float32), name)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_int8_takes_no_infinities(bad):
    keys = np.zeros((1, 2, 8), np.float32)
    keys[0, 1, 3] = bad
    with pytest.raises(ValueError, match="keys: got infinities or NaN, which int8 does not hold"):
        MlaHeads(keys, np.zeros((1, 2, 8), np.float32), "int8")
