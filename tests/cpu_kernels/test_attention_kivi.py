"""Stores with a residual: groups of tokens encoded as quant's codecs do it, the most recent tokens as float16."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from support.attention import normal, softmax_scale
from support.close import assert_close
from support.spoilers import assert_tells
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels.attention import Attended, attention_ref, rope_ref
from cpu_kernels.attention_bound import (
    ChannelGroups,
    channel_scores_of,
    lse_bound,
    mass_bound,
    seen_tokens,
    weighted_bound,
)
from quant.kv import KV_FORMATS

OP = "attention"
FORMATS = {"kivi2": KV_FORMATS["kv-kivi-2"], "kivi4": KV_FORMATS["kv-kivi-4"]}
LENGTHS = (1, 159, 160, 191, 192, 230, 289)


@dataclass
class Held:
    """A store of B sequences, one page each, in which other tokens were before."""

    name: str
    store: cpu_kernels.KVStore
    table: np.ndarray  # [B, 1] int32

    def append(self, k: np.ndarray, v: np.ndarray, length: int, isa: str | None = None) -> None:
        self.store.append(k, v, self.table, self.ends(length), isa=isa)

    def read(self, length: int, kv_heads: int, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
        k, v = (np.full((len(self.table), kv_heads, length, head_dim), np.nan, np.float32) for _ in range(2))
        self.store.read(self.table, self.ends(length), k, v)
        return k, v

    def attend(self, q: np.ndarray, length: int, isa: str | None = None, window: int = 0) -> np.ndarray:
        out = np.full_like(q, np.nan)
        self.store.attend(q, self.table, self.ends(length), out, softmax_scale(q), window=window, isa=isa)
        assert isa is None or self.store.last_isa == isa
        return out

    def observe(self, q: np.ndarray, length: int, isa: str, window: int) -> Attended:
        kv_heads = q.shape[1] // 2
        out, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
        mass = np.full((len(self.table), kv_heads, length + 5), np.nan, np.float32)
        past = (self.table, self.ends(length), out, softmax_scale(q))
        self.store.attend(q, *past, window=window, isa=isa, lse=lse, mass=mass)
        return Attended(out, lse, mass)

    def ends(self, length: int) -> np.ndarray:
        return np.full(len(self.table), length)


def make_held(name: str, batch: int, kv_heads: int, head_dim: int, page_size: int = 512) -> Held:
    store = cpu_kernels.KVStore(name, batch + 1, page_size, kv_heads, head_dim)
    nothing = np.full((batch + 1, kv_heads, page_size, head_dim), np.nan, np.float32)
    store.append(nothing, nothing, np.arange(batch + 1, dtype=np.int32)[:, None], np.full(batch + 1, page_size))
    return Held(name, store, np.arange(batch, 0, -1, dtype=np.int32)[:, None])


def make_ringed(name: str, batch: int, kv_heads: int, head_dim: int, most: int, page_size: int) -> Held:
    """The same in rings, and in pages of encoded tokens in no order; `most` tokens per sequence."""
    num_pages = -(-FORMATS[name].num_encoded(most) // page_size)
    store = cpu_kernels.KVStore(name, batch * num_pages + 3, page_size, kv_heads, head_dim, num_rings=batch + 2)
    pages = np.random.default_rng(7).permutation(batch * num_pages + 3)[3:].reshape(batch, num_pages)
    rings = np.arange(batch + 1, 1, -1)[:, None]
    return Held(name, store, np.concatenate([rings, pages], 1).astype(np.int32))


def keys_of(batch: int, kv_heads: int, length: int, head_dim: int) -> np.ndarray:
    """Some channels are large at every token."""
    k = normal(1, batch, kv_heads, length, head_dim)
    k[..., 3::16] = 5 * k[..., 3::16] + 8
    return k


def kept(codec, x: np.ndarray, num_encoded: int) -> np.ndarray:
    halves = torch.from_numpy(x).half().float()
    if num_encoded:
        halves[:, :, :num_encoded] = codec.round_trip(halves[:, :, :num_encoded])
    return halves.numpy()


def expected_attention(
    name: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int = 0
) -> tuple[Attended, Attended]:
    """The definition over k and v as the codecs read them, and how far the kernels may be from it."""
    fmt, length = FORMATS[name], k.shape[2]
    num_encoded = fmt.num_encoded(length)
    kept_k, kept_v = kept(fmt.keys, k, num_encoded), kept(fmt.values, v, num_encoded)
    groups = None
    if num_encoded:
        parts = fmt.keys.encode(torch.from_numpy(k[:, :, :num_encoded]).half().float())
        groups = ChannelGroups(*(parts[part].float().numpy() for part in ("scale", "minimum")), 2**fmt.keys.bits - 1)
    scale, sees = softmax_scale(q), seen_tokens(q.shape[2], length, window)
    scores = channel_scores_of(q, kept_k, scale, sees, groups)
    bounds = weighted_bound(scores, kept_v, "int16"), lse_bound(scores), mass_bound(scores, k.shape[1])
    return attention_ref(q, kept_k, kept_v, scale, window), Attended(*bounds)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("head_dim", [32, 96, 128], ids="D={}".format)
def test_store_holds_the_values_of_the_codecs(isa, name, head_dim):
    fmt, k, v = FORMATS[name], keys_of(2, 3, 289, head_dim), normal(2, 2, 3, 289, head_dim)
    k[0, 0, :, 7] = 2.5  # a channel without a span
    for cuts in ((289,), (1, 128, 159, 160, 200, 289), range(1, 290)):
        held, start = make_held(name, 2, 3, head_dim), 0
        for end in cuts:
            held.append(k[:, :, start:end], v[:, :, start:end], end, isa)
            start = end
        got_k, got_v = held.read(289, 3, head_dim)
        assert np.array_equal(got_k, kept(fmt.keys, k, 160))
        assert np.array_equal(got_v, kept(fmt.values, v, 160))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("head_dim", [32, 64, 96], ids="D={}".format)
def test_decode_matches_the_oracle(isa, name, head_dim):
    for length in LENGTHS:
        for heads, kv_heads in ((2, 2), (6, 2), (9, 1)):
            k, v = keys_of(2, kv_heads, length, head_dim), normal(2, 2, kv_heads, length, head_dim)
            q, held = normal(3, 2, heads, 1, head_dim), make_held(name, 2, kv_heads, head_dim)
            held.append(k, v, length)
            expected, bound = expected_attention(name, q, k, v)
            assert_tells(held.attend(q, length, isa), expected.out, bound.out)


@pytest.mark.parametrize("name", FORMATS)
def test_decode_over_several_parts_and_within_a_window(isa, name):
    k, v, q = keys_of(1, 2, 2111, 32), 1 + normal(2, 1, 2, 2111, 32), normal(3, 1, 6, 1, 32)
    held = make_held(name, 1, 2, 32, page_size=2304)
    for length in (1100, 2111):  # the last 128 to 159 tokens begin before and after a part's end
        held.append(k[:, :, :length], v[:, :, :length], length)
        for window in (0, 1, 100, 140, 150, 1041, 5000):
            expected, bound = expected_attention(name, q, k[:, :, :length], v[:, :, :length], window)
            assert_tells(held.attend(q, length, isa, window), expected.out, bound.out)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("start, length", [(0, 40), (130, 159), (159, 191), (191, 192), (193, 223)])
def test_queries_that_see_the_same_encoded(isa, name, start, length):
    for heads, kv_heads, window in ((2, 2, 0), (6, 2, 0), (6, 2, 40), (3, 1, 140)):
        k, v = keys_of(1, kv_heads, length, 32), normal(2, 1, kv_heads, length, 32)
        q, held = normal(3, 1, heads, length - start, 32), make_held(name, 1, kv_heads, 32)
        held.append(k, v, length)
        expected, bound = expected_attention(name, q, k, v, window)
        assert_tells(held.attend(q, length, isa, window), expected.out, bound.out)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "queries, length, window", [(1, 230, 0), (1, 1100, 0), (1, 230, 140), (7, 230, 0), (7, 230, 150)]
)
def test_lse_and_mass(isa, name, queries, length, window):
    k, v, q = keys_of(2, 2, length, 64), normal(2, 2, 2, length, 64), normal(3, 2, 4, queries, 64)
    held = make_held(name, 2, 2, 64, page_size=1152)
    held.append(k, v, length)
    expected, bound = expected_attention(name, q, k, v, window)
    got = held.observe(q, length, isa, window)
    assert_tells(got.out, expected.out, bound.out)
    assert_tells(got.lse, expected.lse, bound.lse)
    assert_tells(got.mass[:, :, :length], expected.mass, bound.mass)
    assert (got.mass[:, :, length:] == 0).all()
    mass = np.full_like(got.mass, np.nan)
    past = (held.table, held.ends(length), got.lse, mass, softmax_scale(q))
    held.store.key_mass(q, *past, window=window, isa=isa)
    assert np.array_equal(mass, got.mass)


@pytest.mark.parametrize("name", FORMATS)
def test_any_number_of_tokens_pass_as_if_one_by_one(isa, name):
    k, v, q = keys_of(2, 2, 230, 64), normal(2, 2, 2, 230, 64), normal(3, 2, 6, 230, 64)
    angles = np.random.default_rng(4).uniform(0, 6, (230, 32))
    cos = np.tile(np.cos(angles), 2).astype(np.float32)
    sin = np.concatenate([-np.sin(angles), np.sin(angles)], 1).astype(np.float32)
    outs = []
    for cuts in ((230,), (100, 230), range(1, 231)):
        held, out, turned, start = make_held(name, 2, 2, 64), np.full_like(q, np.nan), np.full_like(q, np.nan), 0
        for end in cuts:
            new = (x[:, :, start:end] for x in (q, k, v))
            places = (held.table, held.ends(end), turned[:, :, start:end], out[:, :, start:end], softmax_scale(q))
            held.store.append_attend(*new, cos[start:end], sin[start:end], *places, isa=isa)
            start = end
        outs.append(out)
        assert_close(turned, rope_ref(q, cos, sin), atol=2.0**-20)
    assert np.array_equal(outs[0], outs[1]) and np.array_equal(outs[0], outs[2])
    plain = make_held(name, 2, 2, 64)
    for end in range(1, 231):
        plain.store.rope_append(
            *(x[:, :, end - 1 : end] for x in (q, k, v)), *(x[end - 1 : end] for x in (cos, sin)),
            plain.table, plain.ends(end), turned[:, :, end - 1 : end],
        )  # fmt: skip
        assert np.array_equal(plain.attend(turned[:, :, end - 1 : end], end, isa), outs[0][:, :, end - 1 : end])


@pytest.mark.parametrize("name", FORMATS)
def test_sequences_of_their_own_length(name):
    """Rows of sequences that hold 0, 150 and 300 tokens and get 230, 1 and 20."""
    before, counts = np.array([0, 150, 300]), np.array([230, 1, 20])
    ends, rows = before + counts, np.concatenate(([0], np.cumsum(counts)))
    texts = [(keys_of(1, 2, end, 32), normal(2, 1, 2, end, 32), normal(3, 1, 4, end, 32)) for end in ends]
    held = make_held(name, 3, 2, 32)
    for b, (k, v, _) in enumerate(texts):
        held.store.append(k[:, :, : before[b]], v[:, :, : before[b]], held.table[b : b + 1], before[b : b + 1])
    k, v, q = (
        np.concatenate([text[i][:, :, start:] for text, start in zip(texts, before, strict=True)], 2) for i in range(3)
    )
    out, turned = np.full_like(q, np.nan), np.full_like(q, np.nan)
    held.store.append_attend(q, k, v, None, None, held.table, ends, turned, out, softmax_scale(q), cu_seqlens=rows)
    assert np.array_equal(turned, q)
    for b, (k, v, q) in enumerate(texts):
        alone, got = make_held(name, 1, 2, 32), np.full_like(q, np.nan)
        given = (alone.table, ends[b : b + 1], np.empty_like(q), got, softmax_scale(q))
        alone.store.append_attend(q, k, v, None, None, *given)
        assert np.array_equal(out[:, :, rows[b] : rows[b + 1]], got[:, :, before[b] :])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("length", [0, 40, 160, 190, 200, 229])
def test_truncate_makes_recent_tokens_float16_again(name, length):
    fmt, k, v = FORMATS[name], keys_of(2, 2, 230, 32), normal(2, 2, 2, 230, 32)
    held = make_held(name, 2, 2, 32)
    held.append(k, v, 230)
    held.store.truncate(held.table, held.ends(230), held.ends(length))
    sides = [kept(codec, x, 96)[:, :, :length] for codec, x in ((fmt.keys, k), (fmt.values, v))]
    still = fmt.num_encoded(length)
    for got, side in zip(held.read(length, 2, 32), sides, strict=True):
        assert np.array_equal(got[:, :, :still], side[:, :, :still])
        assert np.array_equal(got[:, :, still:], side[:, :, still:].astype(np.float16).astype(np.float32))
    new_k, new_v = normal(5, 2, 2, 300 - length, 32), normal(6, 2, 2, 300 - length, 32)
    held.append(new_k, new_v, 300)
    for codec, side, new, got in zip((fmt.keys, fmt.values), sides, (new_k, new_v), held.read(300, 2, 32), strict=True):
        again = kept(codec, np.concatenate([side, new], 2)[:, :, still:], 160 - still)
        assert np.array_equal(got, np.concatenate([side[:, :, :still], again], 2))


def test_bytes_match_the_encoded_tokens_and_the_ring():
    for name, bits in (("kivi2", 3), ("kivi4", 5)):
        for page_size, encoded in ((16, 0), (160, 32), (4096, 3968)):
            store = cpu_kernels.KVStore(name, 3, page_size, 2, 64)
            assert store.nbytes == 3 * 2 * 2 * 64 * (encoded * bits + 160 * 16) // 8 == 3 * store.page_bytes


@pytest.mark.parametrize("name", FORMATS)
def test_pages_are_copied_resized_and_restored_with_their_recent_tokens(name):
    k, v = keys_of(2, 2, 230, 32), normal(2, 2, 2, 230, 32)
    held = make_held(name, 2, 2, 32, page_size=240)
    held.append(k, v, 230)
    before = held.read(230, 2, 32)
    held.store.resize(1024)
    held.store.add_pages(4)
    held.store.copy_page(int(held.table[0, 0]), 3)
    saved = np.empty(held.store.page_bytes, np.uint8)
    held.store.read_page(3, saved)
    held.store.write_page(0, saved)
    held.table = np.array([[0], [1]], np.int32)
    for got, want in zip(held.read(230, 2, 32), before, strict=True):
        assert np.array_equal(got[0], want[0]) and np.array_equal(got[1], want[1])


@pytest.mark.parametrize("name, page_size", [("kivi2", 16), ("kivi4", 16), ("kivi4", 48)])
def test_rings_apart_from_many_pages_change_no_bit(isa, name, page_size):
    """Tokens that come in pieces, then queries over several parts and within a window."""
    k, v = keys_of(2, 2, 1237, 64), normal(2, 2, 2, 1237, 64)
    one, many = make_held(name, 2, 2, 64, page_size=1248), make_ringed(name, 2, 2, 64, 1237, page_size)
    start = 0
    for end in (7, 159, 160, 300, 1233, 1237):
        new = (normal(4, 2, 4, end - start, 64), k[:, :, start:end], v[:, :, start:end])
        outs = []
        for held in (one, many):
            out, turned = np.full_like(new[0], np.nan), np.empty_like(new[0])
            past = (held.table, held.ends(end), turned, out, softmax_scale(new[0]))
            held.store.append_attend(*new, None, None, *past, isa=isa)
            outs.append(out)
        assert np.array_equal(*outs)
        assert all(np.array_equal(*sides) for sides in zip(one.read(end, 2, 64), many.read(end, 2, 64), strict=True))
        start = end
    q = normal(5, 2, 4, 1, 64)
    for window in (0, 100, 200, 1000):
        found = [held.observe(q, 1237, isa, window) for held in (one, many)]
        assert all(np.array_equal(getattr(found[0], part), getattr(found[1], part)) for part in ("out", "lse", "mass"))


def test_bytes_of_rings_apart():
    for name, bits in (("kivi2", 3), ("kivi4", 5)):
        store = cpu_kernels.KVStore(name, 4, 32, 2, 64, num_rings=3)
        assert store.page_bytes == 2 * 2 * 64 * 32 * bits // 8 and store.ring_bytes == 2 * 2 * 64 * 160 * 2
        assert store.nbytes == 4 * store.page_bytes + 3 * store.ring_bytes
        assert cpu_kernels.KVStore(name, 4, 32, 2, 64).ring_bytes == 0


def test_a_ring_is_restored_in_another_one():
    k, v = keys_of(2, 2, 230, 32), normal(2, 2, 2, 230, 32)
    held = make_ringed("kivi4", 2, 2, 32, 230, 16)
    held.append(k, v, 230)
    before, saved = held.read(230, 2, 32), np.empty(held.store.ring_bytes, np.uint8)
    held.store.read_ring(int(held.table[0, 0]), saved)
    held.store.write_ring(0, saved)
    held.table[0, 0] = 0
    assert all(np.array_equal(*sides) for sides in zip(held.read(230, 2, 32), before, strict=True))
    with pytest.raises(ValueError, match="ring: got 4, expected one of 4 rings apart from the pages"):
        held.store.read_ring(4, saved)


def test_rings_and_pages_that_are_not_there_are_refused():
    held, k = make_ringed("kivi4", 1, 1, 32, 200, 16), normal(1, 1, 1, 200, 32)
    for column, what in ((0, "ring"), (1, "page")):
        table = held.table.copy()
        table[0, column] = 99
        with pytest.raises(ValueError, match=f"block_table: got {what} 99, expected 0 to"):
            held.store.append(k, k, table, held.ends(200))
    with pytest.raises(ValueError, match="ends: got 300, expected 200 to 223"):
        held.store.append(k, k, held.table, held.ends(300))
    with pytest.raises(ValueError, match="num_rings: got 2 for format f16, expected 0, or more for kivi2 and kivi4"):
        cpu_kernels.KVStore("f16", 1, 16, 1, 16, num_rings=2)


def test_nan_stays_in_its_group():
    k, v, q = keys_of(1, 1, 230, 32), normal(2, 1, 1, 230, 32), normal(3, 1, 2, 1, 32)
    held, clean = make_held("kivi2", 1, 1, 32), make_held("kivi2", 1, 1, 32)
    clean.append(k, v, 230)
    k[0, 0, 40, 3] = np.nan
    held.append(k, v, 230)
    assert np.isnan(held.attend(q, 230)).all()
    assert np.array_equal(held.attend(q, 230, window=150), clean.attend(q, 230, window=150))
    q[0, 1, 0, 5] = np.inf
    got = clean.attend(q, 230)
    assert np.isnan(got[0, 1]).all() and np.isfinite(got[0, 0]).all()


def test_threads_change_nothing():
    k, v, q = keys_of(2, 2, 1300, 32), normal(2, 2, 2, 1300, 32), normal(3, 2, 6, 1, 32)
    held = make_held("kivi4", 2, 2, 32, page_size=1312)
    held.append(k, v, 1300)
    assert_threads_change_nothing((1, 2, 3), lambda: held.attend(q, 1300))


def test_unsupported_calls_are_refused():
    held = make_held("kivi2", 2, 2, 32)
    k, q = normal(1, 2, 2, 200, 32), normal(2, 2, 2, 200, 32)
    held.append(k, k, 200)
    with pytest.raises(ValueError, match=r"q: got tokens 0 to 199, expected none from 159 on.*append_attend"):
        held.attend(q, 200)
    with pytest.raises(ValueError, match="slots: got format kivi2"):
        held.store.append(k[:, :, :1], k[:, :, :1], held.table, held.ends(201), slots=np.zeros((2, 2), np.int64))
    with pytest.raises(ValueError, match="compact: got format kivi2"):
        held.store.compact(held.table, held.ends(200), np.zeros((2, 2, 1), np.int64))
    with pytest.raises(ValueError, match=r"ends: got \[B, G\]"):
        held.store.append(k, k, held.table, np.full((2, 2), 200))
    with pytest.raises(ValueError, match="ends: got 600 tokens in pages of 512"):
        held.store.append(k, k, np.array([[0, 1], [2, 0]], np.int32), held.ends(600))
    with pytest.raises(ValueError, match="sinks: got 4 for format kivi2"):
        last = np.ascontiguousarray(q[:, :, :1])
        held.store.attend(last, held.table, held.ends(200), np.empty_like(last), 1.0, sinks=4, sink_q=last)
    with pytest.raises(ValueError, match="held: got"):
        held.store.truncate(held.table, held.ends(200), held.ends(201))
    with pytest.raises(ValueError, match="truncate: got format f16"):
        cpu_kernels.KVStore("f16", 1, 16, 1, 16).truncate(np.zeros((1, 1), np.int32), np.array([1]), np.array([0]))
    with pytest.raises(ValueError, match="a multiple of 32 up to 256 for kivi4"):
        cpu_kernels.KVStore("kivi4", 1, 16, 1, 48)
