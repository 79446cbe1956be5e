"""Lists of blocks against the masks that they come from, and attention over them against its definition."""

from itertools import pairwise

import pytest
import torch
from support.close import assert_close
from support.prefill import masked_attention, prompt, rounding_bound, token_mask

from qbench.prefill import BLOCK, BlockLists, Summaries
from qbench.prefill.block_lists import causal_blocks
from qbench.runtime.attention.block_attention import block_attention, merge, summary_attention


def random_blocks(num_tokens: int, lists: int, key_block: int = BLOCK) -> torch.Tensor:
    shape = causal_blocks(num_tokens, key_block).shape
    return torch.rand(lists, *shape, generator=torch.Generator().manual_seed(1)) < 0.4


@pytest.mark.parametrize("key_block", [BLOCK, 16])
@pytest.mark.parametrize("num_tokens", [1, 127, 128, 129, 500])
@pytest.mark.parametrize("lists", [1, 4])
def test_lists_hold_the_causal_part_of_a_mask(num_tokens, lists, key_block):
    blocks = random_blocks(num_tokens, lists, key_block)
    found = BlockLists.of_mask(blocks, num_tokens, key_block)
    rows = [found.indices[start:end].tolist() for offsets in found.offsets.tolist() for start, end in pairwise(offsets)]
    expected = [
        [k for k in range(blocks.shape[2]) if blocks[h, n, k] and k * key_block < min((n + 1) * BLOCK, num_tokens)]
        for h in range(lists)
        for n in range(blocks.shape[1])
    ]
    assert rows == expected
    assert torch.equal(found.blocks(), blocks & causal_blocks(num_tokens, key_block))
    assert found.share == pytest.approx(sum(map(len, expected)) / (lists * causal_blocks(num_tokens, key_block).sum()))


@pytest.mark.parametrize("key_block", [BLOCK, 16])
@pytest.mark.parametrize("num_tokens, lists", [(1, 1), (129, 4), (500, 4), (384, 1)])
def test_attention_over_blocks_is_that_over_their_mask(num_tokens, lists, key_block):
    given, blocks = prompt(num_tokens), random_blocks(num_tokens, lists, key_block)
    found = block_attention(
        given.q, given.keys, given.values, given.softmax_scale, BlockLists.of_mask(blocks, num_tokens, key_block)
    )
    expected = masked_attention(given, token_mask(blocks, num_tokens, key_block))
    assert_close(found.out, expected, atol=rounding_bound(given))
    if not blocks[0, 0, 0]:
        assert torch.isneginf(found.lse[0, 0])


def test_parts_of_the_keys_merge_to_the_whole():
    given = prompt(300)
    some = random_blocks(300, 4)
    parts = [
        block_attention(given.q, given.keys, given.values, given.softmax_scale, BlockLists.of_mask(mask, 300))
        for mask in (some, ~some)
    ]
    expected = masked_attention(given, torch.ones(1, 300, 300, dtype=torch.bool).tril())
    assert_close(merge(*parts).out, expected, atol=rounding_bound(given))


def test_a_summary_of_equal_tokens_weighs_the_same_as_the_tokens():
    given = prompt(256)
    keys, values = (x[:, :128:4] for x in (given.keys, given.values))  # of the first 128 tokens, 4 each
    found = summary_attention(given.q, Summaries(keys, values, 4, 128), given.softmax_scale)
    groups = given.q.shape[0] // len(keys)
    repeated = [x.repeat_interleave(4, 1).double().repeat_interleave(groups, 0) for x in (keys, values)]
    scores = given.softmax_scale * given.q[:, 128:].double() @ repeated[0].mT
    assert_close(found.out[:, 128:], scores.softmax(-1) @ repeated[1], atol=rounding_bound(given))
    assert_close(found.lse[:, 128:], scores.logsumexp(-1), atol=rounding_bound(given))
    assert not found.out[:, :128].any() and torch.isneginf(found.lse[:, :128]).all()
