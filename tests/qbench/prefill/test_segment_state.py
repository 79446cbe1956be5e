"""Segments with means of earlier ones against a plain loop over queries."""

import math

import pytest
import torch
from support.close import assert_close
from support.prefill import prompt, rounding_bound

from qbench.prefill import Prompt, parse_pattern
from qbench.runtime.attention.block_attention import block_attention, merge, summary_attention


def plain_segment_state(given: Prompt, segment: int, run: int) -> torch.Tensor:
    """[H, T, D] float64: one softmax over own tokens and means, each mean with the log of its run added"""
    groups = given.q.shape[0] // len(given.keys)
    q, k, v = given.q.double(), *(x.double().repeat_interleave(groups, 0) for x in (given.keys, given.values))
    out = torch.empty_like(q)
    for first in range(0, given.num_tokens, segment):
        means = [slice(start, start + run) for start in range(0, first, run)]
        of_keys, of_values = (
            torch.stack([x[:, each].mean(1) for each in means], 1) if means else x[:, :0] for x in (k, v)
        )
        for t in range(first, min(first + segment, given.num_tokens)):
            keys, values = torch.cat([of_keys, k[:, first : t + 1]], 1), torch.cat([of_values, v[:, first : t + 1]], 1)
            scores = given.softmax_scale * q[:, t, None] @ keys.mT
            scores[:, :, : len(means)] += math.log(run)
            out[:, t] = (scores.softmax(-1) @ values)[:, 0]
    return out


@pytest.mark.parametrize("num_tokens", [1, 128, 300, 512, 600])
@pytest.mark.parametrize("segment, run", [(128, 16), (256, 64), (256, 1), (1024, 16)])
def test_segment_state_is_its_definition(num_tokens, segment, run):
    given = prompt(num_tokens)
    pattern = parse_pattern(f"segment-state:segment={segment},run={run}")
    found = block_attention(given.q, given.keys, given.values, given.softmax_scale, pattern.lists(given))
    summaries = pattern.summaries(given)
    if summaries is not None:
        found = merge(found, summary_attention(given.q, summaries, given.softmax_scale))
    assert (summaries is None) == (num_tokens <= segment)
    assert_close(found.out, plain_segment_state(given, segment, run), atol=rounding_bound(given))


def test_means_of_one_token_are_dense():
    given = prompt(500)
    pattern = parse_pattern("segment-state:segment=128,run=1")
    own = block_attention(given.q, given.keys, given.values, given.softmax_scale, pattern.lists(given))
    found = merge(own, summary_attention(given.q, pattern.summaries(given), given.softmax_scale))
    dense = parse_pattern("dense").lists(given)
    expected = block_attention(given.q, given.keys, given.values, given.softmax_scale, dense)
    assert_close(found.out, expected.out, atol=rounding_bound(given))
