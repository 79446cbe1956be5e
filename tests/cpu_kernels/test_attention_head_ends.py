"""Heads that hold their own number of tokens, against calls in which all heads hold as many, bit for bit."""

import numpy as np
import pytest
from support.attention import FLOAT8, FORMATS, normal, scales_of, softmax_scale
from support.close import assert_close

from cpu_kernels import KVStore

OP = "attention"
BATCH, KV_HEADS, GROUP, HEAD_DIM, PAGE, LENGTH = 2, 3, 2, 32, 48, 1200
ENDS = np.array([[1200, 17, 131], [40, 1100, 1025]])
TABLE = np.random.default_rng(5).permutation(50).astype(np.int32).reshape(BATCH, 25)


def held_in(name: str) -> KVStore:
    store = KVStore(name, 50, PAGE, KV_HEADS, HEAD_DIM, scales_of(name))
    shape = (BATCH, KV_HEADS, LENGTH, HEAD_DIM)
    store.append(normal(1, *shape), normal(2, *shape), TABLE, np.full(BATCH, LENGTH))
    return store


def observe(store: KVStore, q: np.ndarray, ends: np.ndarray, **options) -> tuple[np.ndarray, ...]:
    """out [B, H, T, D], lse [B, H, T] and mass [B, G, S]"""
    out, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    mass = np.full((BATCH, KV_HEADS, LENGTH), np.nan, np.float32)
    store.attend(q, TABLE, ends, out, softmax_scale(q), lse=lse, mass=mass, **options)
    return out, lse, mass


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("window", [0, 20], ids="window={}".format)
@pytest.mark.parametrize("queries", [1, 3], ids="T={}".format)
def test_attention_of_each_head_ends_at_its_length(isa, name, queries, window):
    store, q = held_in(name), normal(3, BATCH, KV_HEADS * GROUP, queries, HEAD_DIM)
    out, lse, mass = observe(store, q, ENDS, window=window, isa=isa)
    again = np.full_like(mass, np.nan)
    store.key_mass(q, TABLE, ENDS, lse, again, softmax_scale(q), window, isa=isa)
    for g in range(KV_HEADS):
        ends, heads = ENDS[:, g].copy(), slice(g * GROUP, (g + 1) * GROUP)
        alike = observe(store, q, ends, window=window, isa=isa)
        second = np.full_like(mass, np.nan)
        store.key_mass(q, TABLE, ends, alike[1], second, softmax_scale(q), window, isa=isa)
        assert_close(out[:, heads], alike[0][:, heads])
        assert_close(lse[:, heads], alike[1][:, heads])
        assert_close(mass[:, g], alike[2][:, g])
        assert_close(again[:, g], second[:, g])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [1, 5, 17], ids="T={}".format)
def test_append_writes_each_head_at_its_end(name, count):
    store, k, v = held_in(name), *(normal(seed, BATCH, KV_HEADS, count, HEAD_DIM) for seed in (7, 8))
    store.append(k, v, TABLE, ENDS)
    for g in range(KV_HEADS):
        alike = held_in(name)
        alike.append(k, v, TABLE, ENDS[:, g].copy())
        for got, expected in zip(read(store), read(alike), strict=True):
            assert_close(got[:, g], expected[:, g])


def read(store: KVStore) -> tuple[np.ndarray, np.ndarray]:
    kept = [np.full((BATCH, KV_HEADS, LENGTH, HEAD_DIM), np.nan, np.float32) for _ in range(2)]
    store.read(TABLE, np.full(BATCH, LENGTH), *kept)
    return kept[0], kept[1]


def test_a_varlen_call():
    store, ends, cu_seqlens = held_in("int4"), ENDS, np.array([0, 1, 6])
    q, k, v = (normal(seed, 1, heads, 6, HEAD_DIM) for seed, heads in ((3, 6), (4, 3), (5, 3)))
    store.append(k, v, TABLE, ends, cu_seqlens)
    alone = held_in("int4")
    out = np.full_like(q, np.nan)
    store.attend(q, TABLE, ends, out, 0.2, cu_seqlens=cu_seqlens)
    for b, rows in enumerate((slice(0, 1), slice(1, 6))):
        past = TABLE[b : b + 1], ends[b : b + 1]
        mine, new_k, new_v = (np.ascontiguousarray(x[:, :, rows]) for x in (q, k, v))
        alone.append(new_k, new_v, *past)
        one = np.full_like(mine, np.nan)
        alone.attend(mine, *past, one, 0.2)
        assert_close(out[:, :, rows], one)


def test_slots_are_below_the_end_of_their_head():
    store, k = held_in("f16"), normal(7, BATCH, KV_HEADS, 1, HEAD_DIM)
    before = read(store)[0]
    store.append(k, k, TABLE, ENDS, slots=ENDS - 17)
    np.put_along_axis(before, (ENDS - 17)[..., None, None], k.astype(np.float16).astype(np.float32), 2)
    assert_close(read(store)[0], before)
    with pytest.raises(ValueError, match="slots: got 17, expected 0 to 16"):
        store.append(k, k, TABLE, ENDS, slots=np.full((BATCH, KV_HEADS), 17))


@pytest.mark.parametrize(
    "ends, error, message",
    [
        (ENDS.astype(np.int32), TypeError, r"ends: got int32 \[2, 3\], expected int64 \[B\] or \[B, G\]"),
        (ENDS[:, :2].copy(), ValueError, r"ends: got int64 \[2, 2\], expected 3 columns"),
        (ENDS.T.copy(), ValueError, r"ends: got int64 \[3, 2\]"),
        (ENDS[:, ::-1], ValueError, "contiguous rows"),
        (ENDS - 17, ValueError, "ends: got 0, expected 1 to 1200"),
        (ENDS + 1, ValueError, "ends: got 1201, expected 1 to 1200"),
        (ENDS[..., None].copy(), ValueError, r"ends: got int64 \[2, 3, 1\]"),
    ],
)
def test_bad_ends(ends, error, message):
    store, k = held_in("f32"), normal(7, BATCH, KV_HEADS, 1, HEAD_DIM)
    with pytest.raises(error, match=message):
        store.append(k, k, TABLE, ends)
    with pytest.raises(error, match=message):
        store.attend(k, TABLE, ends, np.empty_like(k), 0.2)


@pytest.mark.parametrize("name", FLOAT8)
def test_heads_that_share_a_scale_end_together(name):
    store, k = KVStore(name, 50, PAGE, KV_HEADS, HEAD_DIM, "per_tensor"), normal(7, BATCH, KV_HEADS, 1, HEAD_DIM)
    with pytest.raises(ValueError, match="ends: got other slots for head 1 than for head 0"):
        store.append(k, k, TABLE, ENDS)
    store.append(k, k, TABLE, ENDS[:, :1].repeat(KV_HEADS, 1))
