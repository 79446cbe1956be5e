"""Calls that bring each sequence its own number of tokens, against a call for each sequence alone, bit for bit."""

from itertools import pairwise

import numpy as np
import pytest
from support.attention import FORMATS, normal, scales_of
from support.close import assert_close
from support.threads import assert_threads_change_nothing

from cpu_kernels import KVStore

OP = "attention"
HEADS, KV_HEADS, HEAD_DIM, PAGE = 6, 2, 32, 32
HELD = [0, 37, 1100, 1, 63]  # tokens before the call; 1100 + 1 are attended to in two parts
NEW = [5, 1, 1, 131, 3]
TOTAL = sum(NEW)
CU_SEQLENS = np.concatenate(([0], np.cumsum(NEW)))
ENDS = np.array(HELD) + NEW


class Store:
    """Sequences of HELD tokens in pages out of order, NaN at slots without a token."""

    def __init__(self, name: str) -> None:
        pages = -(-ENDS // PAGE)
        num_pages = int(pages.sum()) + 2
        self.store = KVStore(name, num_pages, PAGE, KV_HEADS, HEAD_DIM, scales_of(name))
        nothing = np.full((1, KV_HEADS, num_pages * PAGE, HEAD_DIM), np.nan, np.float32)
        self.store.append(nothing, nothing, np.arange(num_pages, dtype=np.int32)[None], np.array([num_pages * PAGE]))
        order = np.random.default_rng(3).permutation(num_pages)
        self.table = np.full((len(NEW), pages.max()), 10**6, np.int32)
        for b, first in enumerate(np.cumsum(pages) - pages):
            self.table[b, : pages[b]] = order[first : first + pages[b]]
            if HELD[b]:
                k, v = normal(b, 1, KV_HEADS, HELD[b], HEAD_DIM), normal(b + 9, 1, KV_HEADS, HELD[b], HEAD_DIM)
                self.store.append(k, v, self.table[b : b + 1], np.array(HELD[b : b + 1]))


def new_tokens() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v of all, [1, heads, N, D]"""
    return tuple(normal(20 + i, 1, heads, TOTAL, HEAD_DIM) for i, heads in enumerate((HEADS, KV_HEADS, KV_HEADS)))


def angles() -> tuple[np.ndarray, np.ndarray]:
    turns = np.concatenate([np.arange(held, end) for held, end in zip(HELD, ENDS, strict=True)])[:, None]
    turns = turns * 0.3 ** np.arange(HEAD_DIM // 2)
    halves = np.cos(turns), np.cos(turns), -np.sin(turns), np.sin(turns)
    return tuple(np.concatenate(pair, 1).astype(np.float32) for pair in (halves[:2], halves[2:]))


def together(held: Store, isa: str | None, window: int) -> np.ndarray:
    q, k, v = new_tokens()
    turned, out = np.full_like(q, np.nan), np.full_like(q, np.nan)
    held.store.rope_append(q, k, v, *angles(), held.table, ENDS, turned, CU_SEQLENS, isa=isa)
    held.store.attend(turned, held.table, ENDS, out, 0.2, window, CU_SEQLENS, isa=isa)
    assert isa is None or held.store.last_isa == isa
    return out


def alone(held: Store, isa: str, window: int) -> np.ndarray:
    parts = []
    for b, (start, end) in enumerate(pairwise(CU_SEQLENS)):
        q, k, v = (np.ascontiguousarray(x[:, :, start:end]) for x in new_tokens())
        turned, out = np.full_like(q, np.nan), np.full_like(q, np.nan)
        past = held.table[b : b + 1], ENDS[b : b + 1]
        cos, sin = (x[start:end] for x in angles())
        held.store.rope_append(q, k, v, cos, sin, *past, turned, isa=isa)
        held.store.attend(turned, *past, out, 0.2, window, isa=isa)
        parts.append(out)
    return np.concatenate(parts, 2)


@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("name", FORMATS)
def test_each_sequence_gives_the_same_result_separately(isa, name, window):
    expected = alone(Store(name), isa, window)
    assert np.isfinite(expected).all()
    assert_close(together(Store(name), isa, window), expected)


@pytest.mark.parametrize("window", [0, 1100])
@pytest.mark.parametrize("length", [1025, 2500])
@pytest.mark.parametrize("name", FORMATS)
def test_tokens_that_come_together_are_as_they_are_one_by_one(isa, name, length, window):
    """Past 1024 tokens, which are summed by themselves: else the cuts of a schedule would change a text."""
    count = 4
    store = KVStore(name, 1, -(-length // PAGE) * PAGE, KV_HEADS, HEAD_DIM, scales_of(name))
    table = np.zeros((1, 1), np.int32)
    store.append(*(normal(seed, 1, KV_HEADS, length, HEAD_DIM) for seed in (1, 2)), table, np.array([length]))
    q = normal(3, 1, HEADS, count, HEAD_DIM)
    out = np.full_like(q, np.nan)
    store.attend(q, table, np.array([length]), out, 0.2, window, isa=isa)
    for i in range(count):
        one = np.full((1, HEADS, 1, HEAD_DIM), np.nan, np.float32)
        seen = np.array([length - count + 1 + i])
        store.attend(np.ascontiguousarray(q[:, :, i : i + 1]), table, seen, one, 0.2, window, isa=isa)
        assert_close(out[:, :, i : i + 1], one)


@pytest.mark.parametrize("name", ["f16", "int4"])
def test_append_without_rotation(isa, name):
    _, k, v = new_tokens()
    held = Store(name)
    held.store.append(k, v, held.table, ENDS, CU_SEQLENS, isa=isa)
    for b, (start, end) in enumerate(pairwise(CU_SEQLENS)):
        one, new = Store(name), (x[:, :, start:end] for x in (k, v))
        one.store.append(*new, one.table[b : b + 1], ENDS[b : b + 1], isa=isa)
        read = [np.full((1, KV_HEADS, ENDS[b], HEAD_DIM), np.nan, np.float32) for _ in range(4)]
        held.store.read(held.table[b : b + 1], ENDS[b : b + 1], *read[:2])
        one.store.read(one.table[b : b + 1], ENDS[b : b + 1], *read[2:])
        assert_close(read[0], read[2])
        assert_close(read[1], read[3])


def test_threads_change_nothing():
    assert_threads_change_nothing((1, 2, 5), lambda: together(Store("f16"), None, 0))


@pytest.mark.parametrize(
    "cu_seqlens, error, message",
    [
        (CU_SEQLENS.astype(np.int32), TypeError, r"cu_seqlens: got int32 .* expected int64 \[6\]"),
        (CU_SEQLENS[:-1], ValueError, r"expected int64 \[6\] that rises from 0 to 141"),
        (CU_SEQLENS + 1, ValueError, "rises from 0 to 141"),
        (np.array([0, 5, 5, 7, 138, 141]), ValueError, "rises from 0 to 141"),
        (np.array([0, 5, 6, 7, 138, 140]), ValueError, "rises from 0 to 141"),
        (np.array([0, 1, 2, 139, 140, 141]), ValueError, "ends: got 100, expected 137 to"),
    ],
    ids=["dtype", "too few", "not from 0", "an empty sequence", "not all rows", "more than a sequence holds"],
)
def test_bad_cu_seqlens(cu_seqlens, error, message):
    held, (q, k, v) = Store("f32"), new_tokens()
    ends = np.array([5, 38, 100, 132, 66])
    with pytest.raises(error, match=message):
        held.store.append(k, v, held.table, ends, cu_seqlens)
    with pytest.raises(error, match=message):
        held.store.attend(q, held.table, ends, np.empty_like(q), 0.2, cu_seqlens=cu_seqlens)


def test_a_batch_has_no_cu_seqlens():
    held, k = Store("f32"), np.zeros((2, KV_HEADS, 3, HEAD_DIM), np.float32)
    with pytest.raises(ValueError, match=r"for a batch of 2, .* and a batch of 1"):
        held.store.append(k, k, held.table[:2], np.array([3, 3]), np.array([0, 1, 3]))
