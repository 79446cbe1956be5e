"""XAttention against a plain loop over pairs of groups."""

import math

import pytest
import torch
from support.prefill import peaked_prompt, prompt

from qbench.prefill import BLOCK, Prompt, parse_pattern
from qbench.prefill.block_lists import causal_blocks


def plain_xattention(given: Prompt, threshold: float, stride: int) -> torch.Tensor:
    """[H, N, N] bool, in float64"""
    tokens, blocks = given.num_tokens, given.num_blocks
    padded = blocks * BLOCK
    groups, per_block = -(-tokens // stride), BLOCK // stride
    mask = torch.zeros(len(given.q), blocks, blocks, dtype=torch.bool)
    for h in range(len(given.q)):
        q, k = torch.zeros(2, padded, given.q.shape[2], dtype=torch.float64)
        q[:tokens], k[:tokens] = given.q[h], given.keys[h // (len(given.q) // len(given.keys))]
        sums = torch.zeros(blocks, blocks, dtype=torch.float64)
        for a in range(groups):
            scores = []
            for b in range(a + 1):
                pairs = ((a * stride + stride - 1 - r, b * stride + r) for r in range(stride))
                scores.append(sum(float(q[t] @ k[s]) for t, s in pairs) * given.softmax_scale / stride)
            for b, weight in enumerate(torch.tensor(scores, dtype=torch.float64).softmax(0).tolist()):
                sums[a // per_block, b // per_block] += weight
        for n in range(blocks):
            always = {0, n}
            covered = sum(float(sums[n, m]) for m in always)
            mask[h, n, list(always)] = True
            for m in sorted(set(range(blocks)) - always, key=lambda m: (-float(sums[n, m]), m)):
                if covered >= threshold * float(sums[n].sum()):
                    break
                mask[h, n, m] = True
                covered += float(sums[n, m])
    return mask & causal_blocks(tokens)


@pytest.mark.parametrize(
    "num_tokens, stride, threshold", [(1, 16, 0.9), (700, 16, 0.9), (700, 64, 0.6), (513, 32, 0.3)]
)
@pytest.mark.parametrize("make", [prompt, peaked_prompt], ids=["flat", "peaked"])
def test_xattention_is_its_definition(make, num_tokens, stride, threshold):
    given = make(num_tokens, heads=2, kv_heads=1)
    found = parse_pattern(f"xattention:threshold={threshold},stride={stride}").lists(given).blocks()
    # A sum within a rounding of the threshold may fall on either side.
    assert (found != plain_xattention(given, threshold, stride)).sum() <= 1


def test_more_rows_than_at_once():
    given = peaked_prompt(1024, heads=1, kv_heads=1)
    found = parse_pattern("xattention:threshold=0.5,stride=4").lists(given).blocks()  # 256 groups
    assert (found != plain_xattention(given, 0.5, 4)).sum() <= 1


def test_the_blocks_of_a_layer_cover_the_threshold_together():
    given = peaked_prompt(700, heads=2, kv_heads=1)
    row, layer = (parse_pattern(f"xattention:threshold=0.6,stride=32,scope={scope}") for scope in ("row", "layer"))
    weights = torch.cat(list(row._block_weights(given)), 1)  # [H, N, N]
    index = torch.arange(given.num_blocks)
    always = ((index == 0) | (index[:, None] == index)).expand(weights.shape) & causal_blocks(700)
    others = sorted(weights[~always].tolist(), reverse=True)
    covered, needed = float(weights[always].sum()), 0
    while covered < 0.6 * float(weights.sum()):
        covered += others[needed]
        needed += 1
    found = layer.lists(given).blocks()
    assert abs(int(found.sum()) - int(always.sum()) - needed) <= 1
    assert (found | ~always).all() and layer.lists(given).share < row.lists(given).share


def test_a_threshold_of_one_is_dense():
    assert parse_pattern("xattention:threshold=1").lists(peaked_prompt(1500)).share == 1


def test_a_higher_threshold_lists_more():
    given = peaked_prompt(1500)
    shares = [parse_pattern(f"xattention:{threshold}").lists(given).share for threshold in (0.3, 0.6, 0.9)]
    assert shares == sorted(shares) and not math.isclose(shares[0], shares[2])
