"""MInference and FlexPrefill against plain loops over tokens, heads and blocks."""

import math

import pytest
import torch
from support.close import assert_close
from support.prefill import attention_weights, masked_attention, peaked_prompt, prompt, rounding_bound, token_mask

from qbench.prefill import BLOCK, Prompt, parse_pattern
from qbench.prefill.block_lists import causal_blocks
from qbench.prefill.pattern import last_weights, slash_sums, vertical_sums
from qbench.runtime.attention.block_attention import block_attention

LENGTHS = [1, 63, 64, 129, 300]


def dense_weights(given: Prompt) -> torch.Tensor:
    return attention_weights(given, torch.ones(1, given.num_tokens, given.num_tokens, dtype=torch.bool).tril())


@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_sums_of_the_last_queries(num_tokens):
    given = prompt(num_tokens)
    weights = last_weights(given, 64)
    count = min(64, num_tokens)
    expected = dense_weights(given)[:, -count:]
    bound = 2**-24 * 32 * (1 + rounding_bound(given) / 2**-24)
    assert_close(weights, expected, atol=bound)
    slash = torch.zeros(len(given.q), num_tokens, dtype=torch.float64)
    for i in range(count):
        for s in range(num_tokens - count + i + 1):
            slash[:, num_tokens - count + i - s] += expected[:, i, s]
    assert_close(vertical_sums(weights), expected.sum(1), atol=count * bound)
    assert_close(slash_sums(weights), slash, atol=count * bound)


def largest(values: list[float], count: int) -> set[int]:
    return set(sorted(range(len(values)), key=lambda i: (-values[i], i))[:count])


@pytest.mark.parametrize("num_tokens, vertical, slash", [(1, 30, 100), (300, 30, 100), (500, 40, 150), (500, 300, 400)])
def test_minference_lists_columns_and_diagonals(num_tokens, vertical, slash):
    given = peaked_prompt(num_tokens)
    weights = last_weights(given, 64)
    columns, distances = vertical_sums(weights), slash_sums(weights)
    columns[:, :30] = distances[:, :100] = math.inf
    expected = torch.zeros(len(given.q), given.num_blocks, -(-num_tokens // 16), dtype=torch.bool)
    for h in range(len(given.q)):
        for s in largest(columns[h].tolist(), vertical):
            expected[h, :, s // 16] = True
        for d in largest(distances[h].tolist(), slash):
            for t in range(d, num_tokens):
                expected[h, t // BLOCK, (t - d) // 16] = True
    lists = parse_pattern(f"minference:vertical={vertical},slash={slash}").lists(given)
    assert torch.equal(lists.blocks(), expected & causal_blocks(num_tokens, 16))


def test_minference_of_all_diagonals_is_dense():
    assert parse_pattern("minference").lists(peaked_prompt(1500)).share == 1


def plain_flexprefill(given: Prompt, gamma: float, tau: float, budget: int) -> tuple[torch.Tensor, list[bool]]:
    """[H, N, N] bool in float64, and whether each head is query-aware"""
    tokens, blocks, least = given.num_tokens, given.num_blocks, math.ceil(budget / BLOCK)
    weights = dense_weights(given)[:, -min(BLOCK, tokens) :]
    count, aware = weights.shape[1], []
    spans = [slice(n * BLOCK, min((n + 1) * BLOCK, tokens)) for n in range(blocks)]
    mask = torch.zeros(len(given.q), blocks, blocks, dtype=torch.bool)
    for h in range(len(given.q)):
        k = given.keys[h // (len(given.q) // len(given.keys))].double()
        q = given.q[h].double()
        columns = weights[h].sum(0) / count
        distances = torch.zeros(tokens, dtype=torch.float64)
        for i in range(count):
            t = tokens - count + i
            distances[: t + 1] += weights[h, i, : t + 1].flip(0) / count
        mean_k = torch.stack([k[span].mean(0) for span in spans])
        mean_q = torch.stack([q[span].mean(0) for span in spans])
        predicted = (given.softmax_scale * q[-count:].mean(0) @ mean_k.T).softmax(0)
        true = torch.stack([columns[span].sum() for span in spans])
        middle = (predicted + true) / 2
        kl = sum(float((x * (x / middle).log()).nan_to_num(0).sum()) for x in (predicted, true))
        aware.append(math.sqrt(max(kl / 2, 0)) < tau)
        for sums, is_column in ((columns, True), (distances, False)):
            covered, needed = 0.0, 0
            for value in sorted(sums.tolist(), reverse=True):
                covered += value
                needed += 1
                if covered > gamma:
                    break
            number = least if aware[h] else max(least, needed // BLOCK + 1)
            held = [float(sums[span].sum()) for span in spans]
            held[0] = math.inf
            for chosen in largest(held, number):
                for n in range(blocks):
                    if is_column:
                        mask[h, n, chosen] = True
                    elif n >= chosen:
                        mask[h, n, n - chosen] = True
        if aware[h]:
            scores = given.softmax_scale * mean_q @ mean_k.T
            scores = scores.masked_fill(~causal_blocks(tokens), -math.inf).softmax(1)
            pairs = sorted((-float(scores[i, j]), i * blocks + j) for i in range(blocks) for j in range(blocks))
            covered = 0.0
            for value, pair in pairs:
                covered -= value
                if covered > gamma * blocks:
                    break
                mask[h, pair // blocks, pair % blocks] = True
    return mask & causal_blocks(tokens), aware


@pytest.mark.parametrize("num_tokens", [400, 700])
@pytest.mark.parametrize("gamma, tau, budget", [(0.9, 0.1, 256), (0.5, 0.0, 128), (0.7, 1.0, 128), (0.6, 0.11, 128)])
def test_flexprefill_is_its_definition(num_tokens, gamma, tau, budget):
    given = peaked_prompt(num_tokens)
    expected, _ = plain_flexprefill(given, gamma, tau, budget)
    found = parse_pattern(f"flexprefill:gamma={gamma},tau={tau},budget={budget}").lists(given).blocks()
    # A sum within a rounding of gamma may fall on either side.
    assert (found != expected).sum() <= 1


def test_flexprefill_has_heads_of_both_kinds():
    aware = plain_flexprefill(peaked_prompt(1024), 0.9, 0.11, 128)[1]
    assert any(aware) and not all(aware)


@pytest.mark.parametrize("text", ["flexprefill:gamma=1", "flexprefill:gamma=1,tau=0", "flexprefill:budget=5000"])
def test_flexprefill_of_all_weights_is_dense(text):
    assert parse_pattern(text).lists(peaked_prompt(1500)).share == 1


@pytest.mark.parametrize("text", ["minference:vertical=30,slash=100", "flexprefill:0.6", "flexprefill:0.6,tau=1"])
def test_attention_over_the_lists_is_that_over_their_mask(text):
    given = peaked_prompt(600)
    pattern = parse_pattern(text)
    lists = pattern.lists(given)
    found = block_attention(given.q, given.keys, given.values, given.softmax_scale, lists)
    mask = token_mask(lists.blocks(), 600, lists.key_block)
    assert_close(found.out, masked_attention(given, mask), atol=rounding_bound(given))
    assert torch.equal(pattern.lists(given).indices, lists.indices)
