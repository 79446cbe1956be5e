"""Bytes of a store's pages, out of it and back."""

import numpy as np
import pytest

from cpu_kernels import KVStore

HEADS, HEAD_DIM, PAGE = 3, 64, 32
KINDS = [
    ("f32", "given"),
    ("f16", "given"),
    ("bf16", "given"),
    ("e4m3", "per_head"),
    ("e4m3", "per_tensor"),
    ("e5m2", "per_head"),
    ("int8", "given"),
    ("int4", "given"),
]


def filled(kind: tuple[str, str], num_pages: int, seed: int) -> KVStore:
    """A store with a page of a sequence each."""
    name, scales = kind
    store = KVStore(name, num_pages, PAGE, HEADS, HEAD_DIM, scales)
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, num_pages, HEADS, PAGE, HEAD_DIM), dtype=np.float32)
    store.append(k, v, np.arange(num_pages, dtype=np.int32)[:, None], np.full(num_pages, PAGE))
    return store


def held(store: KVStore, page: int) -> np.ndarray:
    """Keys and values of a page as they are read."""
    both = np.full((2, 1, HEADS, PAGE, HEAD_DIM), np.nan, dtype=np.float32)
    store.read(np.array([[page]], dtype=np.int32), np.array([PAGE]), *both)
    return both


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_a_page_comes_back_into_any_page_of_any_store(kind):
    one, other = filled(kind, 4, seed=0), filled(kind, 3, seed=1)
    assert one.page_bytes * 4 == one.nbytes
    data = np.zeros(one.page_bytes, dtype=np.uint8)
    one.read_page(2, data)
    others = [held(other, page) for page in (0, 2)]
    other.write_page(1, data)
    assert np.array_equal(held(other, 1), held(one, 2))
    assert all(np.array_equal(held(other, page), was) for page, was in zip((0, 2), others, strict=True))
    again = np.full(one.page_bytes, 7, dtype=np.uint8)
    other.read_page(1, again)
    assert np.array_equal(again, data)


@pytest.mark.parametrize("method", ["read_page", "write_page"])
def test_bad_arguments(method):
    store = filled(("f16", "given"), 2, seed=0)
    size = store.page_bytes
    for page, data, error, message in (
        (2, np.zeros(size, np.uint8), ValueError, "page: got 2, expected 0 to 1"),
        (-1, np.zeros(size, np.uint8), ValueError, "page: got -1"),
        (0, np.zeros(size - 1, np.uint8), ValueError, f"expected uint8 .{size}."),
        (0, np.zeros(2 * size, np.uint8)[::2], ValueError, "with stride 2, expected contiguous"),
        (0, np.zeros((1, size), np.uint8), ValueError, f"expected uint8 .{size}."),
        (0, np.zeros(size, np.int8), TypeError, f"expected uint8 .{size}."),
    ):
        with pytest.raises(error, match=message):
            getattr(store, method)(page, data)
    readonly = np.zeros(size, np.uint8)
    readonly.flags.writeable = False
    with pytest.raises(TypeError, match="out: expected a writable uint8 array"):
        store.read_page(0, readonly)


def test_pages_at_once_match_pages_one_by_one():
    store, other = filled(("int8", "given"), 4, seed=0), filled(("int8", "given"), 4, seed=1)
    pages, data = np.array([3, 0], dtype=np.int32), np.zeros((2, store.page_bytes + 7), dtype=np.uint8)
    store.read_pages(pages, data)
    one = np.zeros(store.page_bytes, dtype=np.uint8)
    for page, row in zip(pages.tolist(), data, strict=True):
        store.read_page(page, one)
        assert (row[:-7] == one).all() and (row[-7:] == 0).all()
    kept = held(other, 0)
    other.write_pages(np.array([1, 2], dtype=np.int32), data)
    assert np.array_equal(held(other, 1), held(store, 3)) and np.array_equal(held(other, 2), held(store, 0))
    assert np.array_equal(held(other, 0), kept)


@pytest.mark.parametrize("method", ["read_pages", "write_pages"])
def test_bad_pages_at_once(method):
    store = filled(("f16", "given"), 2, seed=0)
    pages, rows = np.array([0, 1], dtype=np.int32), np.zeros((2, store.page_bytes), np.uint8)
    for which, data, message in (
        (np.array([0, 2], dtype=np.int32), rows, "page: got 2, expected 0 to 1"),
        (pages, rows[:1], "expected uint8 .2, "),
        (pages, rows[:, 1:].copy(), "expected uint8 .2, "),
    ):
        with pytest.raises(ValueError, match=message):
            getattr(store, method)(which, data)
