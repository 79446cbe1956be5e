"""Attention over a store against its definition, in every format and instruction set."""

import numpy as np
import pytest
import torch
from support.attention import FLOAT8, FLOATS, FORMATS, Filled, expected_attention, filled, normal, softmax_scale
from support.close import assert_close
from support.spoilers import assert_tells
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels.attention import attention_ref, key_mass_ref, rope_ref, round_queries_ref, sink_attention_ref

OP = "attention"
HEADS = [(1, 1), (2, 2), (6, 2), (4, 1), (16, 2), (9, 1)]


# ---- the oracles


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2)], ids=["mha", "gqa"])
@pytest.mark.parametrize("queries, keys, window", [(1, 37, 0), (5, 37, 0), (37, 37, 9), (3, 37, 40)])
def test_oracle_matches_torch(heads, kv_heads, queries, keys, window):
    q, k, v = normal(1, 2, heads, queries, 16), normal(2, 2, kv_heads, keys, 16), normal(3, 2, kv_heads, keys, 16)
    back = keys - queries + np.arange(queries)[:, None] - np.arange(keys)  # how far a key is before its query
    sees = (back >= 0) & (back < (window or keys))
    tensors = (torch.from_numpy(x).double() for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(
        *tensors, attn_mask=torch.from_numpy(sees), enable_gqa=True
    )
    assert_close(attention_ref(q, k, v, 0.25, window).out, expected, atol=2.0**-48)


@pytest.mark.parametrize("queries, keys, window", [(1, 37, 0), (5, 37, 0), (37, 37, 9), (3, 37, 40)])
def test_oracle_gives_the_lse_and_mass_of_torch(queries, keys, window):
    q, k, v = normal(1, 2, 6, queries, 16), normal(2, 2, 2, keys, 16), normal(3, 2, 2, keys, 16)
    back = keys - queries + np.arange(queries)[:, None] - np.arange(keys)  # how far a key is before its query
    sees = torch.from_numpy((back >= 0) & (back < (window or keys)))
    query, key = torch.from_numpy(q).double(), torch.from_numpy(k).double().repeat_interleave(3, dim=1)
    scores = (query @ key.mT * 0.25).masked_fill(~sees, -torch.inf)  # [B, H, T, S]
    mass = scores.softmax(-1).sum(2).unflatten(1, (2, 3)).sum(2)  # [B, G, S]
    attended = attention_ref(q, k, v, 0.25, window)
    assert_close(attended.lse, scores.logsumexp(-1), atol=2.0**-44)
    assert_close(attended.mass, mass, atol=2.0**-44)
    assert_close(key_mass_ref(q, k, attended.lse, 0.25, window), mass, atol=2.0**-44)


def test_mass_of_the_last_queries_needs_only_their_lse():
    q, k, v = normal(1, 1, 4, 9, 16), normal(2, 1, 2, 30, 16), normal(3, 1, 2, 30, 16)
    last = attention_ref(q[:, :, -3:], k, v, 0.25)
    lse = attention_ref(q, k, v, 0.25).lse
    assert_close(key_mass_ref(q[:, :, -3:], k, lse[:, :, -3:], 0.25), last.mass, atol=2.0**-44)


def test_every_query_gives_a_mass_of_one():
    q, k, v = normal(1, 1, 4, 9, 16), normal(2, 1, 2, 30, 16), normal(3, 1, 2, 30, 16)
    mass = sink_attention_ref(q, -q, k, v, 0.25, 5, 3).mass
    assert_close(mass.sum(-1), np.full((1, 2), 2 * 9), atol=2.0**-44)  # two heads per group, nine queries
    assert (mass[:, :, :3] > 0).all() and (mass[:, :, 3 : 30 - 9 - 4] == 0).all()


def test_rounded_queries_are_half_a_step_away_at_most():
    q = normal(4, 3, 5, 64)
    q[0, 0] = 0
    step = np.abs(q).max(-1, keepdims=True) / 32767
    assert (np.abs(round_queries_ref(q, 0.18) - q) <= step * (0.5 + 2**-7)).all()


# ---- the kernels


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("head_dim", [32, 64, 96], ids="D={}".format)
def test_decode_matches_the_oracle(isa, name, head_dim):
    for length in (1, 3, 16, 63, 131):
        for heads, kv_heads in HEADS:
            held = filled(name, normal(1, 2, kv_heads, length, head_dim), normal(2, 2, kv_heads, length, head_dim))
            q = normal(3, 2, heads, 1, head_dim)
            expected, bound = expected_attention(held, q, isa=isa)
            assert_tells(held.attend(q, isa), expected, bound)


@pytest.mark.parametrize("name", FORMATS)
def test_decode_over_several_parts_and_within_a_window(isa, name):
    held = filled(name, normal(1, 1, 2, 2111, 32), 1 + normal(2, 1, 2, 2111, 32), page_size=48)
    q = normal(3, 1, 6, 1, 32)
    for window in (0, 1, 5, 130, 1100, 2111, 5000):
        expected, bound = expected_attention(held, q, window, isa)
        assert_tells(held.attend(q, isa, window), expected, bound)


@pytest.mark.parametrize("name", FORMATS)
def test_prefill_matches_the_oracle(isa, name):
    for queries, length, window in ((2, 2, 0), (63, 63, 0), (3, 131, 0), (131, 150, 0), (131, 150, 40), (40, 140, 1)):
        for heads, kv_heads in ((2, 2), (6, 2), (3, 1)):
            held = filled(name, normal(1, 1, kv_heads, length, 32), normal(2, 1, kv_heads, length, 32))
            q = normal(3, 1, heads, queries, 32)
            expected, bound = expected_attention(held, q, window, isa)
            assert_tells(held.attend(q, isa, window), expected, bound)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("head_dim", [16, 48, 80, 576], ids="D={}".format)
def test_heads_of_any_sixteen(isa, name, head_dim):
    held = filled(name, normal(1, 1, 1, 37, head_dim), normal(2, 1, 1, 37, head_dim))
    for queries in (1, 7):
        q = normal(3, 1, 3, queries, head_dim)
        expected, bound = expected_attention(held, q, isa=isa)
        assert_tells(held.attend(q, isa), expected, bound)


@pytest.mark.parametrize("name", FORMATS)
def test_scores_of_large_magnitude(isa, name):
    """Maxima that rise from chunk to chunk, and weights that vanish next to them."""
    k = normal(1, 1, 1, 700, 32) * np.linspace(0.1, 30, 700, dtype=np.float32)[:, None]
    held = filled(name, k, normal(2, 1, 1, 700, 32))
    q = 4 * normal(3, 1, 2, 1, 32)
    expected, bound = expected_attention(held, q, isa=isa)
    assert_tells(held.attend(q, isa), expected, bound)


@pytest.mark.skipif("amx" not in cpu_kernels.features(), reason="this machine has no amx")
@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3"])
@pytest.mark.parametrize("queries", [31, 32])
def test_tiles_multiply_many_rows(name, queries, monkeypatch):
    """Their sums have another order, so that other bits prove that they ran; f16 may be kept out of them."""
    held, q = filled(name, normal(1, 1, 2, 150, 64), normal(2, 1, 2, 150, 64)), normal(3, 1, 2, queries, 64)
    without = held.attend(q, "avx512_bf16")
    assert np.array_equal(held.attend(q, "amx"), without) == (queries < 32)
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")
    assert np.array_equal(held.attend(q, "amx"), without) == (name == "f16" or queries < 32)


@pytest.mark.parametrize("name", FORMATS)
def test_an_exact_store_gives_a_query_the_same_bits_in_any_batch(isa, name):
    held = filled(name, normal(1, 1, 2, 150, 64), normal(2, 1, 2, 150, 64), exact=True)
    q = normal(3, 1, 6, 70, 64)
    together = held.attend(q, isa)
    for t in range(70):
        past = Filled(held.store, held.table, np.array([150 - 69 + t]), held.k, held.v)
        assert_close(past.attend(np.ascontiguousarray(q[:, :, t : t + 1]), isa), together[:, :, t : t + 1])
    if isa == "amx":
        assert_close(held.attend(q, "avx512_bf16"), together)


# ---- dependences of a result


@pytest.mark.parametrize("queries", [1, 40])
def test_threads_change_nothing(queries):
    held = filled("f16", normal(1, 2, 2, 2111, 32), normal(2, 2, 2, 2111, 32))
    assert_threads_change_nothing((1, 2, 3), lambda: held.attend(normal(3, 2, 6, queries, 32)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_sequence_gives_the_same_result_without_its_batch(isa, name):
    """In a batch of other lengths, and in a longer run of queries, bit for bit."""
    held = filled(name, normal(1, 3, 2, 200, 32), normal(2, 3, 2, 200, 32))
    lengths = np.array([200, 77, 140])
    for queries in (1, 60):
        q = normal(3, 3, 6, queries, 32)
        together = held.attend(q, isa, lengths=lengths)
        for b in range(3):
            alone = Filled(held.store, held.table[b : b + 1], lengths[b : b + 1], held.k, held.v)
            assert_close(alone.attend(q[b : b + 1].copy(), isa), together[b : b + 1])
    few = held.attend(np.ascontiguousarray(q[:, :, 45:]), isa, lengths=lengths)  # enough of them for tiles
    assert_close(few, together[:, :, 45:])


@pytest.mark.parametrize("name", FORMATS)
def test_nan_reaches_only_queries_that_see_it(isa, name):
    """A token's NaN comes to its own query and to those behind it, whatever tile they share; not to those before."""
    k, v, q = normal(1, 1, 1, 150, 32), normal(2, 1, 1, 150, 32), normal(3, 1, 2, 150, 32)
    clean = filled(name, k, v).attend(q, isa)
    for x in (k, v):
        kept = x[0, 0, 67].copy()
        x[0, 0, 67] = np.nan
        out = filled(name, k, v).attend(q, isa)
        x[0, 0, 67] = kept
        assert np.isnan(out[:, :, 67:]).all()
        assert_close(out[:, :, :67], clean[:, :, :67])
    q[0, 1, 9, 3] = np.nan
    out = filled(name, k, v).attend(q, isa)
    assert np.isnan(out[0, 1, 9]).all()
    assert_close(np.delete(out[0, 1], 9, 0), np.delete(clean[0, 1], 9, 0))


@pytest.mark.parametrize("name", FLOAT8)
def test_nan_codes_reach_only_queries_that_see_them(isa, name):
    """Float8 whose scale is given once: NaN is in the codes, in lanes that others share and do not see."""
    k, v, q = normal(1, 1, 1, 150, 32), normal(2, 1, 1, 150, 32), normal(3, 1, 2, 150, 32)
    table, lengths, one = np.zeros((1, 1), np.int32), np.array([150]), np.ones(1, np.float32)

    def attend() -> np.ndarray:
        store, out = cpu_kernels.KVStore(name, 1, 160, 1, 32, "given", one, one), np.full_like(q, np.nan)
        store.append(k, v, table, lengths)
        store.attend(q, table, lengths, out, softmax_scale(q), isa=isa)
        return out

    clean = attend()
    assert np.isfinite(clean).all()
    for x in (k, v):
        kept = x[0, 0, 66].copy()
        x[0, 0, 66] = np.nan
        out = attend()
        x[0, 0, 66] = kept
        assert np.isnan(out[:, :, 66:]).all()
        assert_close(out[:, :, :66], clean[:, :, :66])


@pytest.mark.parametrize("name", FLOATS)
def test_infinite_keys_and_queries(isa, name):
    """A score of infinity is NaN for its query; one of -infinity is a key that the query does not see."""
    k, v, q = normal(1, 1, 1, 40, 32), normal(2, 1, 1, 40, 32), normal(3, 1, 1, 1, 32)
    _, bound = expected_attention(filled(name, k[:, :, 1:], v[:, :, 1:]), q)
    has_nan = []
    for x, value in ((k, np.inf), (k, -np.inf), (q, np.inf)):
        kept = x[0, 0, 0, 5]
        x[0, 0, 0, 5] = value
        held = filled(name, k, v)
        with np.errstate(invalid="ignore"):
            expected = attention_ref(q, held.k, held.v, softmax_scale(q)).out
        assert_close(held.attend(q, isa), expected, atol=bound)
        has_nan.append(np.isnan(expected).any())
        x[0, 0, 0, 5] = kept
    assert sorted(has_nan) == [False, True, True]


def test_no_tokens_and_no_sequences():
    held = filled("f16", normal(1, 2, 2, 20, 32), normal(2, 2, 2, 20, 32))
    assert held.attend(normal(3, 2, 4, 0, 32)).shape == (2, 4, 0, 32)
    none = Filled(held.store, held.table[:0], held.lengths[:0], held.k, held.v)
    assert none.attend(normal(3, 0, 4, 1, 32)).shape == (0, 4, 1, 32)
    nothing = normal(3, 2, 2, 0, 32)
    held.store.append(nothing, nothing, held.table, held.lengths)


def test_queries_and_outputs_may_be_strided():
    held = filled("f32", normal(1, 2, 2, 33, 32), normal(2, 2, 2, 33, 32))
    tokens_first = normal(3, 2, 5, 4, 32)  # [B, T, H, D], as a projection leaves it
    q = tokens_first.transpose(0, 2, 1, 3)
    out = np.full_like(tokens_first, np.nan)
    held.store.attend(q, held.table, held.lengths, out.transpose(0, 2, 1, 3), softmax_scale(q))
    assert_close(out.transpose(0, 2, 1, 3), held.attend(np.ascontiguousarray(q)))


# ---- rotation and growth


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("tokens, position", [(1, 0), (1, 30), (19, 13), (63, 0)])
def test_rope_append_turns_queries_and_keys(isa, name, tokens, position):
    q, k, v = normal(1, 2, 4, tokens, 32), normal(2, 2, 2, tokens, 32), normal(3, 2, 2, tokens, 32)
    angles = np.outer(np.arange(position, position + tokens), 0.7 ** np.arange(16))
    cos, sin = (f(np.concatenate([angles, angles], 1)).astype(np.float32) for f in (np.cos, np.sin))
    sin[:, :16] *= -1
    old = normal(4, 2, 2, position, 32)
    store = cpu_kernels.KVStore(name, 2, 96, 2, 32, "per_head" if name in FLOAT8 else "given")
    table, lengths = np.array([[1], [0]], np.int32), np.full(2, position + tokens)
    store.append(old, old, table, lengths - tokens)
    q_out = np.full_like(q, np.nan)
    store.rope_append(q, k, v, cos, sin, table, lengths, q_out, isa=isa)
    assert_close(q_out, rope_ref(q, cos, sin), atol=3 * 2.0**-24 * np.abs(q).max())
    in_place = q.copy()
    store.rope_append(in_place, k, v, cos, sin, table, lengths, in_place, isa=isa)
    assert_close(in_place, q_out)
    turned = np.concatenate([old, rope_ref(k, cos, sin).astype(np.float32)], axis=2)
    expected = filled(name, turned, np.concatenate([old, v], axis=2))
    got_k, got_v = np.empty_like(turned), np.empty_like(turned)
    store.read(table, lengths, got_k, got_v)
    # A key that is rounded a bit otherwise may take the next code: e5m2's are 2**-2 apart, int4's 1/15 of the range.
    step = {"f32": 2**-22, "f16": 2**-10, "bf16": 2**-7, "e4m3": 2**-3, "e5m2": 2**-2, "int8": 2**-7, "int4": 2**-2}
    assert_close(got_k, expected.k, atol=step[name] * np.abs(turned).max())
    assert_close(got_v, expected.v)


@pytest.mark.parametrize("name", FORMATS)
def test_pages_change_their_size(name):
    k, v = normal(1, 2, 2, 30, 32), normal(2, 2, 2, 30, 32)
    store = cpu_kernels.KVStore(name, 2, 32, 2, 32, "per_head" if name in FLOAT8 else "given")
    table, lengths = np.array([[1], [0]], np.int32), np.full(2, 30)
    store.append(k, v, table, lengths)
    before = store.nbytes
    expected = filled(name, k, v)
    for page_size, held in ((80, 30), (16, 16), (48, 16)):
        store.resize(page_size)
        assert store.nbytes == before / 32 * page_size
        assert store.page_size == page_size
        got_k, got_v = np.empty((2, 2, held, 32), np.float32), np.empty((2, 2, held, 32), np.float32)
        store.read(table, np.full(2, held), got_k, got_v)
        assert_close(got_k, expected.k[:, :, :held])
        assert_close(got_v, expected.v[:, :, :held])


# ---- errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("f17", 1, 16, 1, 32), "format: got f17, expected one of f32, f16, bf16, e4m3, e5m2, int8, int4"),
        (("f16", 0, 16, 1, 32), "num_pages: got 0"),
        (("f16", 1, 17, 1, 32), "page_size: got 17, expected a multiple of 16"),
        (("f16", 1, 16, 0, 32), "num_heads: got 0"),
        (("f16", 1, 16, 1, 24), "head_dim: got 24, expected a multiple of 16 up to 1024 for f16"),
        (("int4", 1, 16, 1, 48), "head_dim: got 48, expected a multiple of 32 up to 256 for int4"),
        (("int8", 1, 16, 1, 512), "up to 256 for int8"),
        (("e4m3", 1, 16, 1, 32, "by_day"), "scales: got by_day"),
        (("e4m3", 1, 16, 1, 32, "given"), "k_scale, v_scale: expected both"),
        (("f16", 1, 16, 2, 32, "given", np.ones(2, np.float32), np.ones(2, np.float32)), "else none"),
        (("e4m3", 1, 16, 3, 32, "given", np.ones(2, np.float32), np.ones(1, np.float32)), "expected 1 or 3 scales"),
        (("e4m3", 1, 16, 2, 32, "given", np.float32([1, 0]), np.ones(1, np.float32)), "k_scale: got 0.0"),
        (("e4m3", 1, 16, 1, 32, "given", np.ones(1, np.float32), np.float32([-1])), "v_scale: got -1.0"),
        (("e5m2", 1, 16, 1, 32, "given", np.float32([np.inf]), np.ones(1, np.float32)), "k_scale: got inf"),
        (("e5m2", 1, 16, 1, 32, "given", np.float32([np.nan]), np.ones(1, np.float32)), "expected numbers above 0"),
        (("f16", 2**40, 2**40, 1, 32), r"expected fewer than 2\^63 bytes"),
        (("f16", 1, 2**58, 1, 32), r"expected fewer than 2\^63 bytes"),  # 2**64 of them: 0, if that wraps
    ],
)
def test_bad_stores(arguments, message):
    with pytest.raises(ValueError, match=message):
        cpu_kernels.KVStore(*arguments)


BAD_CALLS = {
    "dtype": ({"q": np.zeros((1, 2, 1, 32))}, TypeError, r"q: got float64 \[1, 2, 1, 32\], expected float32"),
    "axes": ({"q": np.zeros((2, 1, 32), np.float32)}, ValueError, r"q: got float32 \[2, 1, 32\]"),
    "head": ({"q": np.zeros((1, 2, 1, 16), np.float32)}, ValueError, r"expected float32 \[B, heads, T, 32\]"),
    "last stride": ({"q": np.zeros((1, 2, 1, 64), np.float32)[..., ::2]}, ValueError, "a last stride of 2"),
    "heads": ({"q": np.zeros((1, 3, 1, 32), np.float32)}, ValueError, "expected a multiple of 2 heads"),
    "no heads": (dict.fromkeys(("q", "out"), np.zeros((1, 0, 1, 32), np.float32)), ValueError, "a multiple of 2 heads"),
    "out": ({"out": np.zeros((1, 2, 2, 32), np.float32)}, ValueError, "expected the shape of q"),
    "out dtype": ({"out": np.zeros((1, 2, 1, 32))}, TypeError, "out: got float64"),
    "read-only": ({"out": np.broadcast_to(np.float32(0), (1, 2, 1, 32))}, TypeError, "writable"),
    "table dtype": ({"block_table": np.zeros((1, 1), np.int64)}, TypeError, "block_table: got int64"),
    "table rows": ({"block_table": np.zeros((2, 1), np.int32)}, ValueError, "for each of 1 sequences"),
    "page": ({"block_table": np.array([[2]], np.int32)}, ValueError, "got page 2, expected 0 to 1"),
    "negative page": ({"block_table": np.array([[-1]], np.int32)}, ValueError, "got page -1"),
    "ends dtype": ({"ends": np.zeros(1, np.int32)}, TypeError, "ends: got int32"),
    "too long": ({"ends": np.array([33])}, ValueError, "ends: got 33, expected 1 to 32"),
    "too short": ({"ends": np.array([0])}, ValueError, "ends: got 0, expected 1 to 32"),
    "window": ({"window": -1}, ValueError, "window: got -1"),
    "isa": ({"isa": "avx1024"}, RuntimeError, "unknown instruction set"),
}


@pytest.mark.parametrize("changes, error, message", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(changes, error, message):
    store = cpu_kernels.KVStore("f16", 2, 32, 2, 32)
    zeros = np.zeros((1, 2, 1, 32), np.float32)
    arguments = {
        "q": zeros,
        "block_table": np.zeros((1, 1), np.int32),
        "ends": np.array([1]),
        "out": zeros.copy(),
        "softmax_scale": 1.0,
    }
    store.append(zeros, zeros, arguments["block_table"], arguments["ends"])
    with pytest.raises(error, match=message):
        store.attend(**arguments | changes)


def test_bad_appends():
    store = cpu_kernels.KVStore("f16", 2, 32, 2, 32)
    table, lengths = np.zeros((1, 1), np.int32), np.array([4])
    k = np.zeros((1, 2, 4, 32), np.float32)
    with pytest.raises(ValueError, match=r"expected both \[B, 2, T, D\]"):
        store.append(k[:, :1], k[:, :1], table, lengths)
    with pytest.raises(ValueError, match=r"v: got .*float32 \[1, 2, 3, 32\]"):
        store.append(k, k[:, :, :3], table, lengths)
    angles = np.zeros((4, 32), np.float32)
    with pytest.raises(ValueError, match=r"cos: got .* expected 4 rows"):
        store.rope_append(k, k, k, angles[:3], angles, table, lengths, k.copy())
    with pytest.raises(ValueError, match="expected the batch and tokens of k"):
        store.rope_append(k[:, :, :2], k, k, angles, angles, table, lengths, k.copy())
    with pytest.raises(ValueError, match="page_size: got 40"):
        store.resize(40)
    with pytest.raises(ValueError, match=r"expected fewer than 2\^63 bytes"):
        store.resize(2**57)
