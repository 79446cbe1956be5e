"""Attention over listed blocks against its definition, in every format and instruction set."""

import numpy as np
import pytest
from support.attention import FORMATS, arithmetic, filled, multiplied, normal, rounded_queries, softmax_scale
from support.close import assert_close
from support.spoilers import assert_tells
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels.attention import attention_ref, block_attention_ref
from cpu_kernels.attention_bound import lse_bound, scores_of, weighted_bound

OP = "attention"
SHAPES = [  # heads, kv heads, tokens, key block, query block
    (2, 2, 1, 16, 128),
    (6, 2, 47, 16, 32),
    (2, 1, 150, 128, 128),
    (2, 1, 131, 32, 100),
]


def lists_of(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """offsets, indices of a mask [L, N, K] of blocks"""
    counts = blocks.sum(2)
    ends = counts.cumsum().reshape(counts.shape)
    starts = np.concatenate(([0], ends.ravel()[:-1])).reshape(counts.shape)
    return np.concatenate((starts, ends[:, -1:]), 1), np.nonzero(blocks)[2].astype(np.int32)


def some_blocks(rows: int, tokens: int, key_block: int, query_block: int, share: float = 0.4) -> np.ndarray:
    """[L, N, K] bool: a mask in which every query sees its own block"""
    num_queries, num_keys = -(-tokens // query_block), -(-tokens // key_block)
    blocks = np.random.default_rng(tokens).random((rows, num_queries, num_keys)) < share
    for t in range(tokens):
        blocks[:, t // query_block, t // key_block] = True
    return blocks


def token_mask(blocks: np.ndarray, tokens: int, key_block: int, query_block: int) -> np.ndarray:
    """[L, T, T] bool"""
    return np.tril(blocks.repeat(query_block, 1).repeat(key_block, 2)[:, :tokens, :tokens])


def attend_blocks(held, q: np.ndarray, blocks: np.ndarray, key_block: int, query_block: int, isa: str | None = None):
    out, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    past = (held.table, held.lengths, out, softmax_scale(q))
    held.store.attend_blocks(q, *past, *lists_of(blocks), key_block, query_block, lse=lse, isa=isa)
    assert isa is None or held.store.last_isa == isa
    return out, lse


def held_of(name: str, kv_heads: int, tokens: int, head_dim: int = 32):
    return filled(name, normal(1, 1, kv_heads, tokens, head_dim), normal(2, 1, kv_heads, tokens, head_dim))


def test_oracle_with_all_blocks_is_the_dense_one():
    q, k, v = normal(1, 1, 4, 70, 16), normal(2, 1, 2, 70, 16), normal(3, 1, 2, 70, 16)
    out, lse = block_attention_ref(q, k, v, 0.25, *lists_of(np.ones((1, 3, 5), bool)), 16, 32)
    dense = attention_ref(q, k, v, 0.25)
    assert_close(out, dense.out, atol=2.0**-48)
    assert_close(lse, dense.lse, atol=2.0**-44)


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_of_each_head(isa, name):
    for heads, kv_heads, tokens, key_block, query_block in SHAPES:
        held, q = held_of(name, kv_heads, tokens), normal(3, 1, heads, tokens, 32)
        for rows in (1, heads):
            blocks = some_blocks(rows, tokens, key_block, query_block)
            out, lse = attend_blocks(held, q, blocks, key_block, query_block, isa)
            rounded, how, (keys, values) = (
                rounded_queries(held, q, isa),
                arithmetic(held, q, isa),
                multiplied(held, q, isa),
            )
            given = (rounded, keys, values, softmax_scale(q), *lists_of(blocks), key_block, query_block)
            expected, expected_lse = block_attention_ref(*given)
            sees = token_mask(blocks, tokens, key_block, query_block)[None]
            scores = scores_of(rounded, keys, softmax_scale(q), sees, how)
            assert_tells(out, expected, weighted_bound(scores, values, how))
            assert (np.abs(lse - expected_lse) <= lse_bound(scores)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_all_blocks_give_the_bits_of_attend(isa, name):
    held, q = held_of(name, 1, 1100), normal(3, 1, 2, 1100, 32)  # several stretches
    dense = held.observe(q, isa)
    for key_block in (16, 128):
        blocks = np.ones((1, 9, -(-1100 // key_block)), bool)
        out, lse = attend_blocks(held, q, blocks, key_block, 128, isa)
        assert_close(out, dense.out)
        assert_close(lse, dense.lse)


def test_later_queries_of_a_longer_sequence():
    held, q = held_of("f16", 2, 500), normal(3, 1, 4, 200, 32)
    blocks = np.ones((1, 2, 4), bool)
    out, _ = attend_blocks(held, q, blocks, 128, 128)
    assert_close(out, held.attend(q))


def test_a_query_without_tokens_has_zeros():
    held, q = held_of("f32", 2, 200), normal(3, 1, 4, 200, 32)
    blocks = np.zeros((4, 2, 2), bool)
    blocks[1, 1, 0] = blocks[2, 0, 1] = True  # head 2: a block after all of its queries
    out, lse = attend_blocks(held, q, blocks, 128, 128)
    sees = np.zeros((4, 200), bool)
    sees[1, 128:] = True
    assert (out[0][~sees] == 0).all() and np.isneginf(lse[0][~sees]).all()
    assert (out[0][sees] != 0).any(-1).all() and np.isfinite(lse[0][sees]).all()


def test_threads_change_nothing():
    held, q = held_of("f16", 2, 700), normal(3, 1, 6, 700, 32)
    blocks = some_blocks(6, 700, 128, 128)
    assert_threads_change_nothing((1, 2, 3), lambda: attend_blocks(held, q, blocks, 128, 128)[0])


def call(**changes):
    held, q = held_of("f32", 2, 40), normal(3, 1, 4, 40, 32)
    offsets, indices = lists_of(np.ones((1, 1, 1), bool))
    given = {"q": q, "block_table": held.table, "ends": held.lengths, "out": np.empty_like(q), "softmax_scale": 1.0}
    given |= {"offsets": offsets, "indices": indices} | changes
    held.store.attend_blocks(**given)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"offsets": np.zeros((2, 2), np.int64)}, "offsets: got .*expected int64 .1 or 4, 2."),
        ({"offsets": np.zeros((1, 3), np.int64)}, "offsets: got"),
        ({"offsets": np.array([[0, 2]])}, "offsets: got .*rises to at most the number of indices"),
        ({"offsets": np.array([[1, 0]])}, "offsets: got"),
        ({"offsets": np.array([[-1, 1]])}, "offsets: got"),
        ({"indices": np.array([1], np.int32)}, "indices: got 1 after -1, expected lists that rise from 0 to 0 at most"),
        ({"indices": np.array([-1], np.int32)}, "indices: got -1"),
        ({"key_block": 24}, "key_block, query_block: got 24 and 128, expected a multiple of 16"),
        ({"query_block": 0}, "query_block: got 128 and 0"),
        ({"ends": np.array([39])}, "ends: got 39, expected 40"),
    ],
)
def test_bad_lists_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        call(**changes)


def test_lists_that_do_not_rise_are_refused():
    indices = np.array([1, 1], np.int32)
    with pytest.raises(ValueError, match="indices: got 1 after 1"):
        call(offsets=np.array([[0, 2]]), indices=indices, key_block=16)


def test_formats_with_a_residual_are_refused():
    store, q = cpu_kernels.KVStore("kivi4", 1, 64, 2, 32), normal(3, 1, 4, 40, 32)
    past = (np.zeros((1, 1), np.int32), np.array([40]), np.empty_like(q), 1.0)
    with pytest.raises(ValueError, match="got format kivi4, expected one that encodes each token by itself"):
        store.attend_blocks(q, *past, *lists_of(np.ones((1, 1, 1), bool)))
