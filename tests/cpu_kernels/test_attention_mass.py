"""The lse of queries and the attention mass of keys against their definition, in every format and instruction set."""

from itertools import pairwise

import numpy as np
import pytest
from support.attention import (
    FLOAT8,
    FORMATS,
    SPARE_SLOTS,
    Filled,
    arithmetic,
    filled,
    multiplied,
    normal,
    rounded_queries,
    softmax_scale,
)
from support.close import assert_close
from support.spoilers import assert_tells
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels.attention import Attended, attention_ref, key_mass_ref, sink_attention_ref
from cpu_kernels.attention_bound import Scores, lse_bound, mass_bound, scores_of, seen_tokens, sink_scores_of

OP = "attention"
CASES = [  # queries, tokens, window
    (1, 1, 0),
    (1, 131, 40),
    (3, 140, 20),
    (17, 140, 0),
    (33, 33, 3),
]
HEADS = [(2, 2), (6, 2), (9, 1)]


def held_in(name: str, kv_heads: int, length: int, page_size: int = 48, scales: str | None = None) -> Filled:
    keys, values = normal(1, 2, kv_heads, length, 32), normal(2, 2, kv_heads, length, 32)
    return filled(name, keys, values, page_size, scales)


def expected_of(held: Filled, q: np.ndarray, isa: str | None, window: int = 0) -> tuple[Attended, Scores]:
    """The oracle's results, and the scores that bound their errors."""
    rounded, scale, (keys, values) = rounded_queries(held, q, isa), softmax_scale(q), multiplied(held, q, isa)
    sees = seen_tokens(q.shape[2], held.k.shape[2], window)
    scores = scores_of(rounded, keys, scale, sees, arithmetic(held, q, isa))
    return attention_ref(rounded, keys, values, scale, window), scores


def assert_mass(mass: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> None:
    """Within the bound, exactly 0 for keys that no query sees, and 0 in the spare slots."""
    num_keys = expected.shape[2]
    assert_tells(mass[..., :num_keys], expected, bound)
    assert_close(mass[..., :num_keys][expected == 0], np.zeros((expected == 0).sum()))
    assert_close(mass[..., num_keys:], np.zeros((*mass.shape[:2], SPARE_SLOTS)))


def assert_observed(held: Filled, q: np.ndarray, isa: str, window: int = 0) -> None:
    got, (expected, scores) = held.observe(q, isa, window=window), expected_of(held, q, isa, window)
    assert_close(got.out, held.attend(q, isa, window))  # an output is the same with and without the others
    assert_close(got.lse, expected.lse, atol=lse_bound(scores))
    assert_mass(got.mass, expected.mass, mass_bound(scores, held.k.shape[1]))


# ---- against the definition


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("heads, kv_heads", HEADS, ids=["mha", "gqa", "mqa"])
def test_lse_and_mass(isa, name, heads, kv_heads):
    for queries, length, window in CASES:
        assert_observed(held_in(name, kv_heads, length), normal(3, 2, heads, queries, 32), isa, window)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("queries", [1, 17], ids="T={}".format)
def test_several_parts_and_a_window(isa, name, queries):
    held = filled(name, normal(1, 1, 2, 2111, 32), normal(2, 1, 2, 2111, 32), page_size=48)
    for window in (0, 1100):
        assert_observed(held, normal(3, 1, 6, queries, 32), isa, window)


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("queries", [1, 3], ids="T={}".format)
def test_scales_per_tensor(isa, name, queries):
    """Scales of values are no part of the mass, whatever their size."""
    k, v = normal(1, 1, 2, 140, 32), normal(2, 1, 2, 140, 32) * np.linspace(1, 99, 140, dtype=np.float32)[:, None]
    assert_observed(filled(name, k, v, 32, "per_tensor"), normal(3, 1, 6, queries, 32), isa)


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("queries", [1, 3], ids="T={}".format)
def test_given_scales(isa, name, queries):
    k, v, q = normal(1, 1, 2, 140, 32), normal(2, 1, 2, 140, 32), normal(3, 1, 6, queries, 32)
    given = np.full(1, 2.0**-6, np.float32), np.full(1, 0.25, np.float32)
    store = cpu_kernels.KVStore(name, 1, 144, 2, 32, "given", *given)
    table, lengths = np.zeros((1, 1), np.int32), np.array([140])
    store.append(k, v, table, lengths)
    kept = np.empty_like(k), np.empty_like(v)
    store.read(table, lengths, *kept)
    held = Filled(store, table, lengths, *kept)
    got = held.observe(q, isa)
    # The factor of queries is rounded with a scale of a power of 2: to the same bits.
    expected, scores = expected_of(held, q, isa)
    assert_close(got.lse, expected.lse, atol=lse_bound(scores))
    assert_mass(got.mass, expected.mass, mass_bound(scores, 2))


@pytest.mark.parametrize("name", FORMATS)
def test_scores_of_large_magnitude(isa, name):
    """Weights of the first chunks vanish next to later ones, and the lse is far from 0."""
    k = normal(1, 1, 1, 700, 32) * np.linspace(0.1, 30, 700, dtype=np.float32)[:, None]
    held = filled(name, k, normal(2, 1, 1, 700, 32))
    for queries in (1, 3):
        q = 4 * normal(3, 1, 2, queries, 32)
        got, (expected, scores) = held.observe(q, isa), expected_of(held, q, isa)
        assert_close(got.lse, expected.lse, atol=lse_bound(scores))
        assert_close(got.mass[..., :700], expected.mass, atol=mass_bound(scores, 1))


@pytest.mark.parametrize("name", FORMATS)
def test_key_mass_of_the_last_queries(isa, name):
    held, q = held_in(name, 2, 140), normal(3, 2, 6, 33, 32)
    whole = held.observe(q, isa, mass_queries=17)  # enough rows for tiles, as all queries are
    last, lse = np.ascontiguousarray(q[:, :, -17:]), np.ascontiguousarray(whole.lse[:, :, -17:])
    mass = held.key_mass(last, lse, isa)
    assert_close(mass, whole.mass)
    expected, scores = expected_of(held, last, isa)
    assert_mass(mass, expected.mass, mass_bound(scores, 2))
    rounded = rounded_queries(held, last, isa)
    by_definition = key_mass_ref(rounded, multiplied(held, last, isa)[0], expected.lse, softmax_scale(q))
    assert_mass(mass, by_definition, mass_bound(scores, 2))


@pytest.mark.parametrize("name", FORMATS)
def test_one_query_has_the_same_mass_in_two_passes(isa, name):
    held, q = held_in(name, 2, 140), normal(3, 2, 6, 1, 32)
    one, (expected, scores) = held.observe(q, isa, window=100), expected_of(held, q, isa, 100)
    assert_mass(held.key_mass(q, one.lse, isa, window=100), expected.mass, mass_bound(scores, 2))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("queries, length, window, sinks", [(1, 300, 40, 20), (1, 12, 9, 3), (30, 150, 9, 17)])
def test_mass_covers_sinks(isa, name, queries, length, window, sinks):
    held, q, sink_q = held_in(name, 2, length, 16), normal(3, 2, 6, queries, 32), normal(4, 2, 6, queries, 32)
    got = held.observe(q, isa, window=window, sinks=sinks, sink_q=sink_q)
    near, far = rounded_queries(held, q, isa), rounded_queries(held, sink_q, isa)
    keys, values = multiplied(held, q, isa)
    expected = sink_attention_ref(near, far, keys, values, softmax_scale(q), window, sinks)
    scores = sink_scores_of(near, far, keys, softmax_scale(q), window, sinks, arithmetic(held, q, isa))
    assert_close(got.lse, expected.lse, atol=lse_bound(scores))
    assert_mass(got.mass, expected.mass, mass_bound(scores, 2))


def test_pages_that_are_not_seen_are_not_read():
    held, q, sink_q = held_in("f16", 2, 300, 16), normal(3, 2, 6, 5, 32), normal(4, 2, 6, 5, 32)
    options = {"window": 40, "sinks": 20, "sink_q": sink_q}
    expected = held.observe(q, **options)
    held.table[:, 2 : (300 - 5 + 1 - 40) // 16] = -1
    got = held.observe(q, **options)
    assert_close(got.mass, expected.mass)
    assert_close(held.key_mass(q, got.lse, **options), expected.mass)


# ---- independence of threads and of other sequences


@pytest.mark.parametrize("queries", [1, 40])
def test_threads_change_nothing(queries):
    held = filled("f16", normal(1, 2, 2, 2111, 32), normal(2, 2, 2, 2111, 32))
    assert_threads_change_nothing((1, 2, 3), lambda: held.observe(normal(3, 2, 6, queries, 32)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_sequence_of_a_varlen_batch_gives_the_same_result_separately(isa, name):
    held, new, ends = held_in(name, 2, 140), [5, 1, 1, 17], np.array([140, 131, 1, 17])
    held.table = held.table[[0, 1, 0, 1]]
    cu_seqlens = np.concatenate(([0], np.cumsum(new)))
    q = normal(3, 1, 6, sum(new), 32)
    out, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    mass = np.full((4, 2, 150), np.nan, np.float32)
    past = (held.table, ends)
    more = {"cu_seqlens": cu_seqlens, "isa": isa}
    held.store.attend(q, *past, out, 0.2, lse=lse, mass=mass, mass_queries=3, **more)
    for b, (start, end) in enumerate(pairwise(cu_seqlens)):
        its = np.ascontiguousarray(q[:, :, start:end])
        one = np.full_like(its, np.nan), np.full(its.shape[:3], np.nan, np.float32)
        one_mass = np.full((1, 2, 150), np.nan, np.float32)
        where = (held.table[b : b + 1], ends[b : b + 1])
        held.store.attend(its, *where, one[0], 0.2, isa=isa, lse=one[1], mass=one_mass, mass_queries=3)
        assert_close(lse[:, :, start:end], one[1])
        assert_close(mass[b : b + 1], one_mass)
    whole = np.full_like(mass, np.nan)
    held.store.attend(q, *past, out, 0.2, mass=whole, **more)
    second = np.full_like(mass, np.nan)
    held.store.key_mass(q, *past, lse, second, 0.2, **more)
    several = np.array(new) > 1
    assert_close(second[several], whole[several])  # the others' mass was collected in one pass


@pytest.mark.parametrize("queries", [1, 3])
def test_lse_and_mass_are_the_same_if_only_one_is_wanted(queries):
    held, q = held_in("int8", 2, 140), normal(3, 2, 6, queries, 32)
    both, out = held.observe(q), np.empty_like(q)
    lse, mass = np.full_like(both.lse, np.nan), held.empty_mass()
    past = (held.table, held.lengths, out, softmax_scale(q))
    held.store.attend(q, *past, lse=lse)
    held.store.attend(q, *past, mass=mass)
    assert_close(lse, both.lse)
    assert_close(mass, both.mass)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("queries", [1, 3])
def test_nan_reaches_only_the_mass_of_queries_that_see_it(isa, name, queries):
    k, v = normal(1, 1, 1, 150, 32), normal(2, 1, 1, 150, 32)
    k[0, 0, 149] = np.nan  # the last query alone sees it
    q = normal(3, 1, 2, queries, 32)
    got = filled(name, k, v).observe(q, isa, window=20)
    assert np.isnan(got.lse[:, :, -1]).all() and np.isfinite(got.lse[:, :, :-1]).all()
    assert np.isnan(got.mass[0, 0, 150 - 20 : 150]).all()
    assert np.isfinite(np.delete(got.mass[0, 0], range(150 - 20, 150))).all()


def test_no_queries_give_no_mass():
    held = held_in("f16", 2, 20)
    got = held.observe(normal(3, 2, 4, 0, 32))
    assert_close(got.mass, np.zeros_like(got.mass))


# ---- errors

ZEROS = np.zeros((1, 2, 3, 32), np.float32)
GOOD_LSE, GOOD_MASS = np.zeros((1, 2, 3), np.float32), np.zeros((1, 2, 4), np.float32)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"lse": GOOD_LSE.astype(np.float64)}, TypeError, r"lse: got float64 \[1, 2, 3\]"),
        ({"lse": GOOD_LSE[:, :, :2].copy()}, ValueError, r"lse: got .* expected contiguous float32 \[1, 2, 3\]"),
        ({"lse": GOOD_LSE.transpose(0, 2, 1).copy().transpose(0, 2, 1)}, ValueError, "lse: got .* contiguous"),
        ({"lse": np.broadcast_to(np.float32(0), (1, 2, 3))}, TypeError, "lse: expected a writable float32"),
        (
            {"mass": GOOD_MASS[:, :1].copy()},
            ValueError,
            r"mass: got .* expected contiguous float32 \[1, 2, 4 or more\]",
        ),
        ({"mass": GOOD_MASS[:, :, :3].copy()}, ValueError, "mass: got 3 slots"),
        ({"mass": np.zeros((1, 2, 8), np.float32)[:, :, ::2]}, ValueError, "mass: got .* contiguous"),
        ({"mass": GOOD_MASS[0]}, ValueError, r"mass: got float32 \[2, 4\]"),
        ({"mass_queries": -1}, ValueError, "mass_queries: got -1, expected 0 or more"),
    ],
)
def test_bad_calls(changes, error, message):
    store, past = cpu_kernels.KVStore("f32", 1, 16, 2, 32), (np.zeros((1, 1), np.int32), np.array([4]))
    store.append(ZEROS, ZEROS, past[0], past[1] - 1)
    with pytest.raises(error, match=message):
        store.attend(ZEROS, *past, ZEROS.copy(), 1.0, **changes)


@pytest.mark.parametrize(
    "lse, mass, error, message",
    [
        (GOOD_LSE[:, :, :2].copy(), GOOD_MASS, ValueError, "lse: got .* of q"),
        (GOOD_LSE, GOOD_MASS[:, :, :3].copy(), ValueError, "mass: got 3 slots"),
        (GOOD_LSE, None, TypeError, "incompatible function arguments"),
    ],
)
def test_bad_key_mass(lse, mass, error, message):
    store = cpu_kernels.KVStore("f32", 1, 16, 2, 32)
    with pytest.raises(error, match=message):
        store.key_mass(ZEROS, np.zeros((1, 1), np.int32), np.array([4]), lse, mass, 1.0)
