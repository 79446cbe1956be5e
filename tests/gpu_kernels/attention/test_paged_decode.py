"""In addition to the problems (proof/test_check.py): edges, formats, refusals."""

import dataclasses

import pytest
import torch
from support.close import assert_close
from support.older_gpu import as_sm_80

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.configs import SHARED_BYTES
from gpu_kernels.attention.paged import CODES
from gpu_kernels.attention.paged_decode import Operands, paged_decode, paged_decode_ref
from gpu_kernels.attention.paged_decode_triton import CONFIGS
from gpu_kernels.attention.paged_operands import paged_cache
from gpu_kernels.proof.problems import Draw

FORMS = {"float16": torch.float16} | {name: dtype for dtype, name in CODES.items()}
forms = pytest.mark.parametrize("dtype", FORMS.values(), ids=FORMS.keys())


def make(
    seq_lens, num_queries=1, dtype=torch.float16, num_heads=4, num_kv_heads=2, head_size=64, num_scales=1, device="cpu"
):
    draw = Draw(device, seed=1)
    query = draw.normal(len(seq_lens), num_queries, num_heads, head_size, dtype=torch.float16)
    return query, paged_cache(draw, seq_lens, num_kv_heads, head_size, 16, dtype, num_scales)


def check(run, query, cache, num_kv_splits=None, **options):
    got = run(paged_decode, Operands(query, cache, num_kv_splits=num_kv_splits, **options), impl="triton")
    expected = paged_decode_ref(Operands(query, cache, **options))
    assert agrees(got, expected, head_size=query.shape[-1], num_tokens=cache.max_seq_len)
    return got[:2]


@forms
def test_causal_queries_before_the_first_token(run, dtype):
    """Three new tokens in sequences of 0, 1 and 2: those without a token give zeros and lse = -inf."""
    out, lse = check(run, *make([0, 1, 2], num_queries=3, dtype=dtype, device=run.device))
    for sequence, num_seen in enumerate([0, 1, 2]):
        assert (out[sequence, : 3 - num_seen] == 0).all()
        assert (lse[sequence, : 3 - num_seen] == -torch.inf).all()


def test_a_sink_is_all_that_an_empty_sequence_has(run):
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=run.device)
    for splits in (1, 3):
        out, lse = check(run, *make([0, 40], device=run.device), num_kv_splits=splits, sinks=sinks)
        assert (out[0] == 0).all()
        assert_close(lse[0, 0], sinks, atol=2 * 2**-22)


@pytest.mark.parametrize("num_scales", [1, 2], ids=["per_tensor", "per_head"])
def test_a_doubled_scale_doubles_the_result(run, num_scales):
    """Twice the values' scale is twice the result: nothing else is multiplied by it."""
    query, cache = make([37], dtype=torch.int8, num_scales=num_scales, device=run.device)
    out, lse = check(run, query, cache)
    twice, same_lse = check(run, query, dataclasses.replace(cache, value_scale=2 * cache.value_scale))
    assert torch.equal(twice, 2 * out) and torch.equal(same_lse, lse)


@pytest.mark.parametrize("window", [1, 16, 17, 64, 1000])
def test_windows_hide_earlier_pages(run, window):
    """At, before and behind the edges of pages and tiles; pages before the window are not read."""
    query, cache = make([131, 20], num_queries=2, device=run.device)
    last_unseen = 131 - 2 - window + 1  # the first query is token 129 and sees `window` tokens, itself among them
    if last_unseen > 128:  # whole tiles of up to 128 tokens are passed over
        cache.block_table[0, : (last_unseen - 128) // 16] = 2**30
    for splits in (1, 3):
        check(run, query, cache, num_kv_splits=splits, window=window)


def test_nan_reaches_only_its_sequence_and_head(run):
    query, cache = make([40, 40], device=run.device)
    cache.keys[cache.block_table[1, 0], 3, 1, 7] = torch.nan
    out, _ = check(run, query, cache)
    assert out[0].isfinite().all() and out[1, 0, :2].isfinite().all() and out[1, 0, 2:].isnan().all()


def test_pages_with_heads_first(run):
    """[num_pages, Hkv, page_size, D] in memory, and a query with room between heads."""
    query, cache = make([33, 16], num_queries=2, device=run.device)
    keys, values = (rows.transpose(1, 2).contiguous().transpose(1, 2) for rows in (cache.keys, cache.values))
    room = torch.full((2, 2, 8, 64), torch.nan, dtype=torch.float16, device=run.device)
    room[:, :, ::2] = query
    check(run, room[:, :, ::2], dataclasses.replace(cache, keys=keys, values=values))


def test_strided_seq_lens_and_tables(run):
    query, cache = make([33, 16], device=run.device)
    seq_lens = torch.stack([cache.seq_lens, cache.seq_lens + 2**20], dim=1)[:, 0]
    table = cache.block_table.T.contiguous().T
    check(run, query, dataclasses.replace(cache, block_table=table, seq_lens=seq_lens))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_a_gpu_without_fp8_converts_through_integers(run, dtype):
    query, cache = make([33, 16], num_queries=2, dtype=dtype, num_scales=2, device=run.device)
    got = run(as_sm_80, paged_decode, Operands(query, cache), impl="triton")
    assert agrees(got, paged_decode_ref(Operands(query, cache)), head_size=64, num_tokens=cache.max_seq_len)


def test_cpu_default_is_the_reference():
    query, cache = make([5, 0])
    out, lse, _ = paged_decode(Operands(query, cache))
    expected = paged_decode_ref(Operands(query, cache))
    assert torch.equal(out, expected.out.half())
    assert_close(lse, expected.lse.float())


REFUSED = {
    "float32 query": ({"query": torch.zeros(2, 1, 4, 64)}, {}, TypeError, "got query torch.float32"),
    "mixed": ({}, {"values": torch.zeros(9, 16, 2, 64).bfloat16()}, TypeError, "got values torch.bfloat16"),
    "int64 seq_lens": ({}, {"seq_lens": torch.zeros(2).long()}, TypeError, "got seq_lens torch.int64"),
    "other batch": ({"query": torch.zeros(3, 1, 4, 64).half()}, {}, ValueError, r"expected \[2, Q, H, D\]"),
    "heads": ({"query": torch.zeros(2, 1, 3, 64).half()}, {}, ValueError, "got 3 heads over 2 of keys"),
    "scales of floats": ({}, {"key_scale": torch.ones(1)}, ValueError, "expected scales with 8-bit codes alone"),
    "17 tokens": ({"query": torch.zeros(2, 17, 4, 64).half()}, {}, NotImplementedError, "expected 1 to 16"),
    "sinks": ({"sinks": torch.zeros(3)}, {}, ValueError, r"got sinks \[3\], expected \[4\]"),
    "window": ({"window": 0}, {}, ValueError, "got window 0"),
}


@pytest.mark.parametrize("change, cache_change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, cache_change, error, message):
    query, cache = make([20, 5])
    with pytest.raises(error, match=message):
        paged_decode(Operands(**{"query": query, "cache": dataclasses.replace(cache, **cache_change)} | change))


def test_unknown_implementation_is_refused():
    with pytest.raises(NotImplementedError, match="got impl 'cuda'"):
        paged_decode(Operands(*make([20, 5])), impl="cuda")


def test_codes_need_both_scales():
    query, cache = make([5], dtype=torch.int8)
    for change in ({"key_scale": None}, {"value_scale": torch.ones(2)}):
        with pytest.raises(ValueError, match="scale"):
            paged_decode(Operands(query, dataclasses.replace(cache, **change)))


@pytest.mark.parametrize("head_size, page_size, told", [(72, 16, "head size 72"), (64, 8, "page size 8")])
def test_unsupported_sizes_list_the_supported(head_size, page_size, told):
    cache = paged_cache(Draw("cpu"), [5], 2, head_size, page_size, torch.float16)
    with pytest.raises(NotImplementedError, match=f"got {told}, expected one of"):
        paged_decode(Operands(torch.zeros(1, 1, 4, head_size).half(), cache))


@pytest.mark.parametrize("key", CONFIGS, ids=lambda key: f"sm_{key[0]}-{key[1]}")
def test_programs_fit_a_multiprocessor(key):
    """Shared memory as paged_decode_triton.py counts it. A warpgroup's product needs a buffer more, of 16-bit numbers.

    With one stage there is that buffer alone; mma.sync reads codes that are fetched ahead without it.
    """
    head_size = 256 if "wide" in key[1] else 128
    item = 2 if key[1].startswith("16 bit") else 1
    for _, candidates in CONFIGS[key]:
        for config in candidates:
            numbers = 2 * config.block_n * head_size
            ahead = max(1, (config.num_stages - 1) // 2) * numbers * item if config.num_stages > 1 else 0
            is_more = config.num_stages == 1 or (config.block_r >= 64 and key[0] >= 90)
            shared = config.block_r * head_size * 2 + ahead + 2 * numbers * is_more
            assert shared * config.programs <= SHARED_BYTES[key[0]], config
