"""Sparse prefill next to its problems (proof/test_check.py): the oracle, edges and refusals."""

import dataclasses

import numpy as np
import pytest
import torch
from support.close import assert_close

from cpu_kernels.attention import block_attention_ref
from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.block_prefill import Operands, block_prefill, block_prefill_ref
from gpu_kernels.attention.block_prefill_problems import random_lists
from gpu_kernels.attention.textbook import attend, visible_tokens
from gpu_kernels.proof.problems import Draw


def make(num_tokens: int = 300, rows: int = 4, share: float = 0.5, device: str = "cpu") -> Operands:
    draw = Draw("cpu", seed=1)
    query, keys, values = (draw.normal(num_tokens, heads, 64, dtype=torch.float16) for heads in (4, 2, 2))
    tensors = (query, keys, values, *random_lists(num_tokens, rows, share))
    return Operands(*(tensor.to(device) for tensor in tensors), 0.125)


@pytest.mark.parametrize("rows", [1, 4])
def test_ref_is_the_oracle_of_the_cpu(rows):
    operands = make(rows=rows)
    heads_first = [x.transpose(0, 1)[None].double().numpy() for x in (operands.query, operands.keys, operands.values)]
    lists = operands.offsets.numpy().astype(np.int64), operands.indices.numpy()
    out, lse = block_attention_ref(*heads_first, 0.125, *lists)
    found = block_prefill_ref(operands)
    assert_close(found.out.transpose(0, 1)[None], out, atol=64 * 2**-53 * 8)
    assert_close(found.lse.T[None], lse, atol=64 * 2**-53 * 8)


def test_all_blocks_are_dense(run):
    operands = make(share=1.0, device=run.device)
    got = run(block_prefill, operands, impl="triton")
    visible = visible_tokens(300, 300, device=run.device)
    expected = attend(operands.query, operands.keys, operands.values, visible, operands.softmax_scale)
    assert agrees(got, expected, head_size=64, num_tokens=300)


def test_a_query_without_tokens_has_zeros(run):
    operands = make(rows=1, device=run.device)
    # No list for the first block, a block after the queries for the second one, and all for the third one.
    offsets, indices = torch.tensor([[0, 0, 1, 4]], dtype=torch.int32), torch.tensor([2, 0, 1, 2], dtype=torch.int32)
    operands = dataclasses.replace(operands, offsets=offsets.to(run.device), indices=indices.to(run.device))
    out, lse = run(block_prefill, operands, impl="triton")
    assert not out[:256].any() and torch.isneginf(lse[:256]).all()
    assert agrees((out, lse), block_prefill_ref(operands), head_size=64, num_tokens=300)


def test_views_of_wider_rows(run):
    operands = make(device=run.device)
    wide = torch.full((300, 2, 3, 64), torch.nan, dtype=torch.float16, device=run.device)
    wide[:, :, 1] = operands.keys
    got = run(block_prefill, dataclasses.replace(operands, keys=wide[:, :, 1]), impl="triton")
    assert agrees(got, block_prefill_ref(operands), head_size=64, num_tokens=300)


def test_an_empty_prompt():
    query, keys = torch.zeros(0, 4, 64, dtype=torch.float16), torch.zeros(0, 2, 64, dtype=torch.float16)
    nothing = torch.zeros(1, 1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    out, lse = block_prefill(Operands(query, keys, keys, *nothing, 1.0))
    assert out.shape == (0, 4, 64) and lse.shape == (0, 4)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"query": torch.zeros(300, 4, 64)}, TypeError, "got query torch.float32"),
        ({"keys": torch.zeros(299, 2, 64, dtype=torch.float16)}, ValueError, "got keys"),
        ({"keys": torch.zeros(300, 3, 64, dtype=torch.float16)}, ValueError, "expected groups"),
        ({"offsets": torch.zeros(1, 3, dtype=torch.int32)}, ValueError, "got offsets"),
        ({"offsets": torch.zeros(2, 4, dtype=torch.int32)}, NotImplementedError, "number of lists 2"),
        ({"offsets": torch.zeros(4, 4)}, TypeError, "got offsets torch.float32"),
        ({"indices": torch.zeros(3, dtype=torch.int64)}, TypeError, "got indices torch.int64"),
        ({"indices": torch.zeros(6, dtype=torch.int32)[::2]}, ValueError, "expected it dense"),
    ],
)
def test_bad_block_lists_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(make(), **change)


def test_other_head_sizes_are_refused():
    query, keys = torch.zeros(5, 2, 80, dtype=torch.float16), torch.zeros(5, 1, 80, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="head size 80, expected one of"):
        Operands(query, keys, keys, *random_lists(5, 1, 1.0), 1.0)
