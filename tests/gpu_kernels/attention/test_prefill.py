"""Paged and MLA prefill, in addition to the problems (proof/test_check.py): edges and refusals."""

import dataclasses

import pytest
import torch
from support.close import assert_close
from torch.nn.functional import scaled_dot_product_attention

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.mla_prefill import Operands as MlaPrefill
from gpu_kernels.attention.mla_prefill import mla_prefill, mla_prefill_ref
from gpu_kernels.attention.paged_decode import Operands as PagedDecode
from gpu_kernels.attention.paged_decode import paged_decode_ref
from gpu_kernels.attention.paged_operands import paged_cache, sequence_bounds
from gpu_kernels.attention.paged_prefill import Operands as PagedPrefill
from gpu_kernels.attention.paged_prefill import paged_prefill, paged_prefill_ref
from gpu_kernels.proof.problems import Draw


def make_paged(new, seq_lens, device="cpu"):
    draw = Draw(device, seed=1)
    return {
        "query": draw.normal(sum(new), 4, 64, dtype=torch.float16),
        "cu_queries": sequence_bounds(new, device),
        "cache": paged_cache(draw, seq_lens, 2, 64, 16, torch.float16),
    }


def make_mla(new, seq_lens, device="cpu"):
    draw = Draw(device, seed=1)
    return {
        "query": draw.normal(sum(new), 3, 192, dtype=torch.float16),
        "keys": draw.normal(sum(seq_lens), 3, 192, dtype=torch.float16),
        "values": draw.normal(sum(seq_lens), 3, 128, dtype=torch.float16),
        "cu_queries": sequence_bounds(new, device),
        "cu_keys": sequence_bounds(seq_lens, device),
        "softmax_scale": 192**-0.5,
    }


def check_paged(run, operands, most_queries=None):
    got = run(paged_prefill, PagedPrefill(**operands, most_queries=most_queries), impl="triton")
    expected = paged_prefill_ref(PagedPrefill(**operands))
    assert agrees(got, expected, head_size=64, num_tokens=operands["cache"].max_seq_len)
    return got[:2]


# -- the oracles


def test_paged_ref_is_decodes_on_the_same_tokens():
    operands = make_paged([3, 3], [20, 3])
    got = paged_prefill_ref(PagedPrefill(**operands))
    expected = paged_decode_ref(PagedDecode(operands["query"].view(2, 3, 4, 64), operands["cache"]))
    assert_close(got.out, expected.out.flatten(0, 1), atol=64 * 2**-53)
    assert_close(got.lse, expected.lse.flatten(0, 1), atol=64 * 2**-53)


def test_mla_ref_is_torchs_causal_attention():
    operands = make_mla([7], [7])
    query, keys, values = (operands[name].double().transpose(0, 1)[None] for name in ("query", "keys", "values"))
    expected = scaled_dot_product_attention(query, keys, values, is_causal=True, scale=192**-0.5)
    assert_close(mla_prefill_ref(MlaPrefill(**operands)).out, expected[0].transpose(0, 1), atol=64 * 2**-53)


# -- edges


def test_new_tokens_before_the_first(run):
    """More queries than tokens, and sequences without either."""
    out, lse = check_paged(run, make_paged([0, 3, 5], [0, 1, 5], run.device))
    assert (out[:2] == 0).all() and (lse[:2] == -torch.inf).all() and lse[2:].isfinite().all()


def test_a_batch_is_its_sequences(run):
    """Bit by bit: nothing of one sequence reaches another, wherever it is and for any number of rows per block."""
    operands = make_paged([5, 40, 1], [16, 40, 33], run.device)
    out, lse = check_paged(run, operands, most_queries=40)
    cache = operands["cache"]
    alone = dataclasses.replace(cache, block_table=cache.block_table[1:2], seq_lens=cache.seq_lens[1:2])
    single = operands | {"query": operands["query"][5:45], "cache": alone}
    got = check_paged(run, single | {"cu_queries": sequence_bounds([40], run.device)})
    assert torch.equal(got[0], out[5:45]) and torch.equal(got[1], lse[5:45])


def test_mla_strided(run):
    """Keys whose rotated channels, and values whose neighbours, are part of wider rows."""
    operands = make_mla([5, 20], [9, 20], run.device)
    both = torch.full((29, 3, 384), torch.nan, dtype=torch.float16, device=run.device)
    both[..., :192], both[..., 256:] = operands["keys"], operands["values"]
    views = operands | {"keys": both[..., :192], "values": both[..., 256:]}
    got = run(mla_prefill, MlaPrefill(**views), impl="triton")
    assert agrees(got, mla_prefill_ref(MlaPrefill(**operands)), head_size=192, num_tokens=20)


# -- the public functions


def test_cpu_default_is_the_reference():
    operands = make_paged([2, 0], [5, 0])
    operands = PagedPrefill(**operands)
    assert torch.equal(paged_prefill(operands)[0], paged_prefill_ref(operands).out.half())
    operands = make_mla([2, 1], [5, 1])
    operands = MlaPrefill(**operands)
    assert torch.equal(mla_prefill(operands)[0], mla_prefill_ref(operands).out.half())


def test_empty_batches_give_empty_results():
    assert paged_prefill(PagedPrefill(**make_paged([0], [5])))[0].shape == (0, 4, 64)
    assert mla_prefill(MlaPrefill(**make_mla([], [])))[1].shape == (0, 3)


PAGED_REFUSED = {
    "four axes": ({"query": torch.zeros(1, 5, 4, 64).half()}, ValueError, r"expected \[tokens, H, D\]"),
    "int64 bounds": ({"cu_queries": torch.tensor([0, 5])}, TypeError, "got cu_queries torch.int64"),
    "other batch": ({"cu_queries": torch.zeros(4).int()}, ValueError, r"got cu_queries \[4\], expected \[2\]"),
    "sinks": ({"sinks": torch.zeros(4).long()}, TypeError, "got sinks torch.int64"),
}
MLA_REFUSED = {
    "float32": ({"query": torch.zeros(5, 3, 192)}, TypeError, "got query torch.float32"),
    "mixed": ({"values": torch.zeros(5, 3, 128).bfloat16()}, TypeError, "got values torch.bfloat16"),
    "other heads": ({"keys": torch.zeros(5, 2, 192).half()}, ValueError, r"got keys \[5, 2, 192\]"),
    "other batch": ({"cu_keys": torch.zeros(4).int()}, ValueError, r"got cu_queries \[2\], expected \[4\]"),
    "value size": ({"values": torch.zeros(5, 3, 64).half()}, NotImplementedError, "got value size 64"),
}


@pytest.mark.parametrize("change, error, message", PAGED_REFUSED.values(), ids=PAGED_REFUSED.keys())
def test_paged_refused(change, error, message):
    with pytest.raises(error, match=message):
        paged_prefill(PagedPrefill(**make_paged([5], [5]) | change))


@pytest.mark.parametrize("change, error, message", MLA_REFUSED.values(), ids=MLA_REFUSED.keys())
def test_mla_refused(change, error, message):
    with pytest.raises(error, match=message):
        mla_prefill(MlaPrefill(**make_mla([5], [5]) | change))


def test_unknown_implementation_is_refused():
    with pytest.raises(NotImplementedError, match="got impl 'cuda'"):
        paged_prefill(PagedPrefill(**make_paged([5], [5])), impl="cuda")


def test_unaligned_pages_are_refused():
    operands = make_paged([5], [5])
    cache = operands["cache"]
    odd = torch.zeros(*cache.keys.shape[:3], 65).half()[..., :64]
    with pytest.raises(ValueError, match="rows 16-byte aligned"):
        paged_prefill(PagedPrefill(**operands | {"cache": dataclasses.replace(cache, keys=odd)}))
