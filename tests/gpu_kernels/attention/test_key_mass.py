"""The mass of tokens, in addition to the problems (proof/test_check.py): edges, refusals, and the ways of decode."""

import dataclasses
from unittest import mock

import pytest
import torch
from support.close import assert_close
from support.older_gpu import as_sm_80

from gpu_kernels.attention.agreement import agrees, mass_agrees
from gpu_kernels.attention.configs import SHARED_BYTES
from gpu_kernels.attention.key_mass import Operands, key_mass, key_mass_ref
from gpu_kernels.attention.key_mass_triton import CONFIGS, key_mass_kernel, stores_scores
from gpu_kernels.attention.paged_decode import Operands as PagedDecode
from gpu_kernels.attention.paged_decode import paged_decode, paged_decode_ref
from gpu_kernels.attention.paged_decode_triton import launches
from gpu_kernels.attention.paged_operands import paged_cache, sequence_bounds, with_head_lengths
from gpu_kernels.attention.paged_prefill import Operands as PagedPrefill
from gpu_kernels.attention.paged_prefill import paged_prefill, paged_prefill_ref
from gpu_kernels.proof.problems import Draw

GROUP = 2  # heads of a key-value head in `make`


def make(new, seq_lens, device="cpu", dtype=torch.float16, head_size=64):
    """(query, cu_queries, cache) of 4 heads over 2."""
    draw = Draw(device, seed=1)
    query = draw.normal(sum(new), 2 * GROUP, head_size, dtype=torch.float16)
    return query, sequence_bounds(new, device), paged_cache(draw, seq_lens, 2, head_size, 16, dtype)


def mass_by(run, query, bounds, cache, **options):
    """The result of `key_mass` with the lse of `paged_prefill`; it agrees with the oracle."""
    rule = {name: options[name] for name in ("window",) if name in options}
    _, lse, _ = run(paged_prefill, PagedPrefill(query, cache, cu_queries=bounds, **rule), impl="triton")
    operands = Operands(query, cache, lse=lse, cu_queries=bounds, **options)
    mass = run(key_mass, operands, impl="triton")
    assert mass_agrees(mass, key_mass_ref(operands), head_size=query.shape[-1], num_tokens=cache.max_seq_len)
    return mass


def check_decode(run, num_queries, query, cache, **options):
    operands = PagedDecode(query.unflatten(0, (-1, num_queries)), cache, mass_queries=num_queries, **options)
    got = run(paged_decode, operands, impl="triton")
    assert agrees(got, paged_decode_ref(operands), head_size=query.shape[-1], num_tokens=cache.max_seq_len)
    return got[2]


# -- meaning of mass


@pytest.mark.parametrize("window", [None, 1, 16, 33])
def test_each_query_gives_each_head_once(run, window):
    """The mass of a sequence is its queries times the heads of a group. Hidden tokens have 0."""
    mass = mass_by(run, *make([20, 1], [20, 70], run.device), window=window)
    assert_close(mass.sum(2), GROUP * torch.tensor([[20.0, 20.0], [1.0, 1.0]], device=run.device), rtol=2**-16)
    assert (mass[0, :, 20:] == 0).all() and (mass[1, :, 70:] == 0).all()
    assert window is None or (mass[1, :, : 70 - window] == 0).all()


@pytest.mark.parametrize("count", [1, 3, 20, 64])
def test_the_last_queries_count(run, count):
    """Mass of the last queries is the mass of a call that has no others."""
    query, bounds, cache = make([20], [50], run.device)
    _, lse, _ = run(paged_prefill, PagedPrefill(query, cache, cu_queries=bounds), impl="triton")
    some = run(key_mass, Operands(query, cache, lse=lse, cu_queries=bounds, mass_queries=count), impl="triton")
    last = slice(max(0, 20 - count), None)
    short = sequence_bounds([20 - last.start], run.device)
    alone = run(key_mass, Operands(query[last], cache, lse=lse[last], cu_queries=short), impl="triton")
    assert_close(some, alone, rtol=64 * 2**-24)


def test_prefill_gives_the_mass_of_key_mass(run):
    query, bounds, cache = make([20, 0, 3], [50, 5, 3], run.device)
    operands = PagedPrefill(query, cache, cu_queries=bounds, mass_queries=7)
    got = run(paged_prefill, operands, impl="triton")
    assert agrees(got, paged_prefill_ref(operands), head_size=64, num_tokens=64)
    assert torch.equal(got[2], mass_by(run, query, bounds, cache, mass_queries=7))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("by_keys", [False, True], ids=["scores", "keys"])
def test_decode_gives_the_mass_of_prefill(run, by_keys, splits):
    """By stored scores and by the keys again, whatever the parts, with a sink that takes a share."""
    query, bounds, cache = make([3, 3], [50, 2], run.device)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=run.device)
    mass = run(decode_by, by_keys, check_decode, Here(), 3, query, cache, num_kv_splits=splits, sinks=sinks)
    prefill = PagedPrefill(query, cache, cu_queries=bounds, sinks=sinks, mass_queries=3)
    assert_close(mass, run(paged_prefill, prefill, impl="triton")[2], rtol=2**-14)
    assert (mass.sum(2) < 3 * GROUP).all()


class Here:
    """A Runner inside the process that interprets."""

    def __call__(self, launcher, *args, **kwargs):
        return launcher(*args, **kwargs)


def decode_by(by_keys, function, *args, **kwargs):
    with mock.patch("gpu_kernels.attention.paged_decode_triton.stores_scores", return_value=not by_keys):
        return function(*args, **kwargs)


# -- edges


def test_sequences_without_tokens_or_queries(run):
    mass = mass_by(run, *make([0, 3, 5], [0, 1, 40], run.device))
    assert (mass[0] == 0).all() and (mass[1, :, 1:] == 0).all()
    assert_close(mass[1, :, 0], torch.full((2,), 1.0 * GROUP, device=run.device), rtol=2**-16)


def test_no_query_at_all_has_no_mass():
    query, bounds, cache = make([0], [5])
    assert (paged_prefill(PagedPrefill(query, cache, cu_queries=bounds, mass_queries=1))[2] == 0).all()
    assert (key_mass(Operands(query, cache, lse=torch.zeros(0, 4), cu_queries=bounds)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn], ids=["16 bit", "8 bit"])
def test_lengths_of_heads(run, dtype):
    """Each head of keys sees its own length, in prefill, decode and key mass."""
    query, bounds, cache = make([2, 2], [50, 7], run.device, dtype)
    cache = with_head_lengths(cache)
    assert cache.seq_lens.tolist() == [[50, 41], [7, 0]]
    mass = mass_by(run, query, bounds, cache)
    assert (mass[0, 1, 41:] == 0).all() and (mass[1, 1] == 0).all()
    assert_close(check_decode(run, 2, query, cache, num_kv_splits=2), mass, rtol=2**-14)
    operands = PagedPrefill(query, cache, cu_queries=bounds)
    got = run(paged_prefill, operands, impl="triton")
    assert agrees(got, paged_prefill_ref(operands), head_size=64, num_tokens=64)


def test_nan_reaches_only_its_token(run):
    """A key that is NaN has mass NaN; the others keep theirs, given an lse."""
    query, bounds, cache = make([20], [50], run.device)
    lse = torch.full((20, 4), 4.0, device=run.device)
    expected = run(key_mass, Operands(query, cache, lse=lse, cu_queries=bounds), impl="triton")
    cache.keys[cache.block_table[0, 1], 3, 1, 7] = torch.nan
    got = run(key_mass, Operands(query, cache, lse=lse, cu_queries=bounds), impl="triton")
    assert got[0, 1, 19].isnan()
    expected[0, 1, 19] = torch.nan
    assert_close(got, expected)


def test_slots_past_the_longest_are_not_written(run):
    query, bounds, cache = make([3], [20], run.device)
    mass = mass_by(run, query, bounds, cache, max_seq_len=20)
    assert mass.shape == (1, 2, 20)
    assert torch.equal(mass, mass_by(run, query, bounds, cache)[..., :20])
    assert check_decode(run, 3, query, cache, max_seq_len=20).shape == (1, 2, 20)


def test_a_gpu_without_fp8_converts_through_integers(run):
    query, bounds, cache = make([5], [33], run.device, torch.float8_e4m3fn)
    operands = Operands(query, cache, lse=torch.full((5, 4), 4.0, device=run.device), cu_queries=bounds)
    got = run(as_sm_80, key_mass, operands, impl="triton")
    assert mass_agrees(got, key_mass_ref(operands), head_size=64, num_tokens=cache.max_seq_len)


# -- launches


@pytest.mark.parametrize("num_heads, by_scores", [(16, True), (17, False)])
def test_decode_takes_the_fewer_bytes(num_heads, by_scores):
    """16 rows' scores, written and read, are the 128 bytes of a key of 64 channels."""
    draw = Draw("meta")
    cache = paged_cache(draw, [40], 1, 64, 16, torch.float16)
    assert stores_scores(num_heads, cache) == by_scores
    operands = PagedDecode(
        draw.normal(1, 1, num_heads, 64, dtype=torch.float16), cache, mass_queries=1, num_kv_splits=2
    )
    attend, combine, mass = launches(operands, *operands.empty(), row_of_decode(), 90)
    assert (attend.arguments["scores_ptr"] is not None) == by_scores
    assert mass.kernel is key_mass_kernel and combine.kernel is not mass.kernel
    assert (mass.arguments["scores_ptr"] is not None) == by_scores == (mass.arguments["key_ptr"] is None)


def test_mass_costs_nothing_unless_it_is_wanted():
    """The launches are those of a kernel without scores, and nothing more is allocated."""
    cache = paged_cache(Draw("meta"), [40], 1, 64, 16, torch.float16)
    operands = PagedDecode(Draw("meta").normal(1, 1, 4, 64, dtype=torch.float16), cache, num_kv_splits=1)
    out, lse, mass = operands.empty()
    (attend,) = launches(operands, out, lse, mass, row_of_decode(), 90)
    unused = ("scores_ptr", "mass_queries", "num_slots", "stride_lh")
    assert mass is None and [attend.arguments[name] for name in unused] == [None] * 4


def row_of_decode():
    from gpu_kernels.attention.paged_decode_triton import row

    return row(90, torch.float16, 64, 4)[1][0]


# -- refusals

REFUSED = {
    "no queries": ({"mass_queries": 0}, ValueError, "got mass_queries 0, expected at least 1"),
    "lse of doubles": ({"lse": torch.zeros(5, 4).double()}, TypeError, "got lse torch.float64"),
    "other lse": ({"lse": torch.zeros(5, 3)}, ValueError, r"got lse \[5, 3\], expected \[5, 4\]"),
    "strided lse": ({"lse": torch.zeros(4, 5).T}, ValueError, "expected it dense"),
    "window": ({"window": 0}, ValueError, "got window 0"),
    "float32 query": ({"query": torch.zeros(5, 4, 64)}, TypeError, "got query torch.float32"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    query, bounds, cache = make([5], [5])
    given = {"query": query, "lse": torch.zeros(5, 4), "cu_queries": bounds, "cache": cache}
    with pytest.raises(error, match=message):
        Operands(**given | change)


def test_lengths_of_other_heads_are_refused():
    query, bounds, cache = make([5], [5])
    cache = dataclasses.replace(cache, seq_lens=torch.zeros(1, 3, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"got seq_lens \[1, 3\], expected \[1, 2\]"):
        Operands(query, cache, lse=torch.zeros(5, 4), cu_queries=bounds)


@pytest.mark.parametrize("key", CONFIGS, ids=lambda key: f"sm_{key[0]}-{key[1]}")
def test_programs_fit_a_multiprocessor(key):
    """Shared memory as key_mass_triton.py counts it."""
    head_size = 256 if "wide" in key[1] else 128
    for _, candidates in CONFIGS[key]:
        for config in candidates:
            shared = 2 * head_size * (config.block_n + config.num_stages * config.block_r)
            assert shared * config.programs <= SHARED_BYTES[key[0]], config
