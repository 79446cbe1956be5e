"""Star Attention against a plain definition: parts computed apart, the query's partial results merged by lse."""

import pytest
import torch
from support.close import assert_close
from support.prefill import prompt, rounding_bound

from qbench.prefill import BLOCK, Prompt, parse_pattern
from qbench.runtime.attention.block_attention import block_attention


def plain_star(given: Prompt, part: int, query: int) -> torch.Tensor:
    """[H, T, D] float64: phase 1 part by part, phase 2 as sums over the tokens of each part, merged"""
    num_tokens, groups = given.num_tokens, given.q.shape[0] // len(given.keys)
    q, k, v = given.q.double(), *(x.double().repeat_interleave(groups, 0) for x in (given.keys, given.values))
    out = torch.empty_like(q)
    for start in range(0, num_tokens, part):
        seen = sorted({*range(min(part, num_tokens)), *range(start, min(start + part, num_tokens))})
        for t in range(start, min(start + part, num_tokens)):
            own = [s for s in seen if s <= t]
            scores = given.softmax_scale * q[:, t, None] @ k[:, own].mT
            out[:, t] = (scores.softmax(-1) @ v[:, own])[:, 0]
    first = (num_tokens - query) // BLOCK * BLOCK if query else num_tokens
    for t in range(first, num_tokens):
        sums, outs = [], []
        for start in range(0, t + 1, part):
            own = slice(start, min(start + part, t + 1))
            scores = given.softmax_scale * q[:, t, None] @ k[:, own].mT
            sums.append(scores.exp().sum(-1))
            outs.append((scores.softmax(-1) @ v[:, own])[:, 0])
        total = sum(sums)
        out[:, t] = sum(s / total * o for s, o in zip(sums, outs, strict=True))
    return out


@pytest.mark.parametrize("query", [0, 1, 100, 200])
@pytest.mark.parametrize("num_tokens", [1, 128, 300, 513])
def test_star_is_its_definition(num_tokens, query):
    query = min(query, num_tokens)
    given = prompt(num_tokens)
    lists = parse_pattern(f"star:block=100,query={query}").lists(given)  # 100 tokens are one block of 128
    found = block_attention(given.q, given.keys, given.values, given.softmax_scale, lists)
    assert_close(found.out, plain_star(given, BLOCK, query), atol=rounding_bound(given))


@pytest.mark.parametrize("block, part", [("25%", 256), ("256", 256), ("100%", 1024), ("5000", 1024)])
def test_a_part_is_whole_blocks(block, part):
    blocks = parse_pattern(f"star:{block},query=0").lists(prompt(1000)).blocks()[0]
    index = torch.arange(8)
    same = index[:, None] // (part // BLOCK) == index // (part // BLOCK)
    assert torch.equal(blocks, (same | (index < part // BLOCK)) & (index <= index[:, None]))


def test_all_heads_share_the_lists_of_star():
    assert len(parse_pattern("star").lists(prompt(1000)).offsets) == 1
