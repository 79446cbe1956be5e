"""Compaction, in addition to the problems (proof/test_check.py): meaning, edges, refusals."""

import dataclasses

import pytest
import torch

from gpu_kernels.attention.paged_operands import paged_cache
from gpu_kernels.fused.compact import Operands, compact, compact_ref
from gpu_kernels.proof.problems import Draw

FORMATS = [torch.float16, torch.float8_e4m3fn]


def make(keep, seq_lens=(40, 131), dtype=torch.float16, device="cpu"):
    """(operands of 2 heads, the cache)"""
    cache = paged_cache(Draw(device, seed=1), list(seq_lens), 2, 64, 16, dtype)
    rows = torch.tensor(keep, dtype=torch.int32, device=device)
    return Operands(cache.keys, cache.values, cache.block_table, rows), cache


def front(cache, count):
    """(keys, values) of each sequence's first slots"""
    return [cache.read(index, slice(0, 2), count) for index in range(len(cache.seq_lens))]


@pytest.mark.parametrize("dtype", FORMATS, ids=["16 bit", "8 bit"])
def test_kept_tokens_are_in_front(run, dtype):
    """Each head's own tokens, read back through the block table."""
    keep = [[[0, 7, 39], [1, 2, 3]], [[15, 16, 130], [0, 1, 129]]]
    operands, cache = make(keep, dtype=dtype, device=run.device)
    before = [cache.read(index, slice(0, 2), length) for index, length in enumerate((40, 131))]
    run(compact, operands, impl="triton")
    for index, after in enumerate(front(cache, 3)):
        for head in range(2):
            for moved, whole in zip(after, before[index], strict=True):
                assert torch.equal(moved[:, head], whole[keep[index][head], head])


def test_tokens_that_stay_are_not_touched(run):
    """All kept: every bit of the cache stays; so does all behind the kept slots, and slots that a head lacks."""
    whole = [[list(range(40)), list(range(40))]] * 2
    operands, cache = make(whole, device=run.device)
    before = cache.keys.view(torch.int16).clone()
    run(compact, operands, impl="triton")
    assert torch.equal(cache.keys.view(torch.int16), before)
    operands, cache = make([[[3, 5], [9, -1]]] * 2, device=run.device)
    expected = [compact_ref(each, operands.block_table, operands.keep) for each in operands.integers()]
    before = cache.keys.clone()
    run(compact, operands, impl="triton")
    assert all(torch.equal(got, want) for got, want in zip(operands.integers(), expected, strict=True))
    changed = (cache.keys.view(torch.int16) != before.view(torch.int16)).any(-1)  # [num_pages, page_size, G]
    assert changed.sum((0, 1)).tolist() == [4, 2]


def test_shifts_by_less_than_a_block(run):
    """Sources and targets of one block overlap: 130 tokens move by one slot."""
    keep = [[list(range(1, 131)), list(range(130))]]
    operands, cache = make(keep, (131,), device=run.device)
    (keys, _), *_ = front(cache, 131)
    run(compact, operands, impl="triton")
    (moved, _), *_ = front(cache, 130)
    assert torch.equal(moved[:, 0], keys[1:, 0]) and torch.equal(moved[:, 1], keys[:130, 1])


def test_nothing_kept_moves_nothing():
    operands, cache = make(torch.empty(2, 2, 0).tolist())
    before = cache.keys.view(torch.int16).clone()
    compact(operands)
    assert torch.equal(cache.keys.view(torch.int16), before)


REFUSED = {
    "int64 keep": ({"keep": torch.zeros(2, 2, 1).long()}, TypeError, "got keep torch.int64"),
    "other heads": ({"keep": torch.zeros(2, 3, 1).int()}, ValueError, r"keep \[2, 3, 1\], expected \[B, P\]"),
    "strided keep": ({"keep": torch.zeros(1, 2, 2).int().mT.expand(2, 2, 2)}, ValueError, "expected dense"),
    "mixed caches": ({"value_cache": torch.zeros(1, 16, 2, 64)}, TypeError, "expected one type"),
    "other caches": ({"value_cache": torch.zeros(1, 16, 2, 64).half()}, ValueError, "expected both"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    operands, _ = make([[[0], [0]]] * 2)
    with pytest.raises(error, match=message):
        dataclasses.replace(operands, **change)
