"""Attention over a window and the first tokens against its definition."""

import numpy as np
import pytest
from support.attention import FORMATS, Filled, arithmetic, filled, multiplied, normal, rounded_queries, softmax_scale
from support.close import assert_close
from support.spoilers import assert_tells

import cpu_kernels
from cpu_kernels.attention import attention_ref, sink_attention_ref
from cpu_kernels.attention_bound import sink_attention_bound

OP = "attention"
EVICTED = -1


def held_in(name: str, length: int) -> Filled:
    return filled(name, normal(1, 2, 2, length, 32), 1 + normal(2, 2, 2, length, 32), page_size=16)


def attend(held: Filled, q: np.ndarray, sink_q: np.ndarray, window: int, sinks: int, isa=None) -> np.ndarray:
    out = np.full_like(q, np.nan)
    past = (held.table, held.lengths, out, softmax_scale(q), window)
    held.store.attend(q, *past, isa=isa, sinks=sinks, sink_q=sink_q)
    assert isa is None or held.store.last_isa == isa
    return out


def expected_sinks(
    held: Filled, q: np.ndarray, sink_q: np.ndarray, window: int, sinks: int, isa: str
) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's result and its bound: both [B, H, T, D]"""
    near, far = rounded_queries(held, q, isa), rounded_queries(held, sink_q, isa)
    given = (near, far, *multiplied(held, q, isa), softmax_scale(q), window, sinks)
    return sink_attention_ref(*given).out, sink_attention_bound(*given, arithmetic(held, q, isa))


def test_oracle_with_one_query_for_both_is_attention_to_the_tokens_that_are_there():
    q, k, v = normal(3, 1, 4, 1, 16), normal(1, 1, 2, 40, 16), normal(2, 1, 2, 40, 16)
    kept = [*range(3), *range(40 - 9, 40)]
    expected = attention_ref(q, k[:, :, kept], v[:, :, kept], 0.25).out
    assert_close(sink_attention_ref(q, q, k, v, 0.25, 9, 3).out, expected, atol=2.0**-48)
    assert_close(sink_attention_ref(q, q, k, v, 0.25, 37, 3).out, attention_ref(q, k, v, 0.25).out, atol=2.0**-48)


@pytest.mark.parametrize("name", FORMATS)
def test_matches_the_definition(isa, name):
    cases = [(1, 300, 40, 4), (1, 12, 9, 3), (1, 2, 9, 3), (1, 2300, 1200, 1030), (30, 30, 9, 3), (131, 150, 40, 17)]
    for queries, length, window, sinks in cases:
        held, q, sink_q = held_in(name, length), normal(3, 2, 6, queries, 32), normal(4, 2, 6, queries, 32)
        expected, bound = expected_sinks(held, q, sink_q, window, sinks, isa)
        assert_tells(attend(held, q, sink_q, window, sinks, isa), expected, bound)


@pytest.mark.parametrize("name", ["f16", "int8"])
def test_pages_between_are_not_read(name):
    held, q, sink_q = held_in(name, 300), normal(3, 2, 6, 5, 32), normal(4, 2, 6, 5, 32)
    expected = attend(held, q, sink_q, 40, 20)
    held.table[:, 2 : (300 - 5 + 1 - 40) // 16] = EVICTED
    assert_close(attend(held, q, sink_q, 40, 20), expected)


def test_a_query_gives_the_same_result_without_its_batch():
    held, q, sink_q = held_in("f16", 200), normal(3, 2, 6, 9, 32), normal(4, 2, 6, 9, 32)
    together = attend(held, q, sink_q, 40, 20)
    for t in range(9):
        held.lengths = np.full(2, 200 - 8 + t)
        one = (np.ascontiguousarray(each[:, :, t : t + 1]) for each in (q, sink_q))
        assert_close(attend(held, *one, 40, 20), together[:, :, t : t + 1])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sinks": 3}, "sinks, sink_q: got 3 and None, expected both or neither"),
        ({"sinks": -1}, "sinks, sink_q: got -1 and None"),
        ({"sink_q": np.zeros((1, 2, 1, 32), np.float32)}, "got 0 and float32"),
        ({"sinks": 3, "sink_q": np.zeros((1, 2, 2, 32), np.float32)}, "sink_q: got .* expected the shape of q"),
        ({"sinks": 3, "sink_q": np.zeros((1, 2, 1, 16), np.float32)}, "sink_q: got"),
    ],
)
def test_bad_calls(changes, message):
    store, zeros = cpu_kernels.KVStore("f16", 2, 32, 2, 32), np.zeros((1, 2, 1, 32), np.float32)
    past = (np.zeros((1, 1), np.int32), np.array([1]))
    store.append(zeros, zeros, *past)
    with pytest.raises(ValueError, match=message):
        store.attend(zeros, *past, zeros.copy(), 1.0, **changes)
