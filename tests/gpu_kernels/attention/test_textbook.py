"""The oracle against a loop that a textbook would print, and against torch's own attention."""

import math
from dataclasses import replace

import pytest
import torch
from support.close import assert_close
from torch.nn.functional import scaled_dot_product_attention

from cpu_kernels.attention import attention_ref, key_mass_ref
from gpu_kernels.attention import textbook
from gpu_kernels.attention.agreement import agrees, error_bounds, mass_agrees, mass_bound
from gpu_kernels.attention.textbook import ROWS, Attended, attend, gather_pages, mass_of, visible_tokens


def make(num_queries, length, num_heads, num_kv_heads, key_size=5, value_size=3):
    generator = torch.Generator().manual_seed(0)
    shapes = (num_queries, num_heads, key_size), (length, num_kv_heads, key_size), (length, num_kv_heads, value_size)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def loop(query, keys, values, visible, scale, sink=None):
    """out and lse of one query of one head, number by number."""
    seen = [t for t in range(len(keys)) if visible[t]]
    scores = [scale * sum(q * k for q, k in zip(query.tolist(), keys[t].tolist(), strict=True)) for t in seen]
    total = sum(map(math.exp, scores)) + (0.0 if sink is None else math.exp(sink))
    lse = math.log(total) if total else -math.inf
    out = [sum(math.exp(s) / total * values[t][d].item() for s, t in zip(scores, seen, strict=True)) for d in range(3)]
    return out, lse


@pytest.mark.parametrize("with_sinks", [False, True], ids=["no_sinks", "sinks"])
@pytest.mark.parametrize("window", [None, 2])
def test_equals_textbook_loop(window, with_sinks):
    query, keys, values = make(3, 7, 4, 2)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]) if with_sinks else None
    visible = visible_tokens(3, 7, window)
    got = attend(query, keys, values, visible, 0.3, sinks)
    for q in range(3):
        for h in range(4):
            sink = None if sinks is None else sinks[h].item()
            out, lse = loop(query[q, h], keys[:, h // 2], values[:, h // 2], visible[q], 0.3, sink)
            assert_close(got.out[q, h], out, rtol=16 * 2**-53, atol=16 * 2**-53)
            assert_close(got.lse[q, h], lse, rtol=16 * 2**-53, atol=16 * 2**-53)


def test_equals_torch():
    query, keys, values = make(7, 7, 4, 2)
    got = attend(query, keys, values, visible_tokens(7, 7), 0.3)
    operands = (tensor.transpose(0, 1)[None] for tensor in (query, keys, values))
    expected = scaled_dot_product_attention(*operands, is_causal=True, scale=0.3, enable_gqa=True)
    assert_close(got.out, expected[0].transpose(0, 1), atol=32 * 2**-53)


@pytest.mark.parametrize("at_once", [0, 2 * 21, 10**9])
def test_heads_in_pieces_are_the_heads(monkeypatch, at_once):
    """One head at a time, two (of 3 queries and 7 tokens), or all."""
    query, keys, values = make(3, 7, 5, 5)
    expected = attend(query, keys, values, visible_tokens(3, 7), 0.3, torch.arange(5.0))
    monkeypatch.setattr(textbook, "SCORES_AT_ONCE", at_once)
    got = attend(query, keys, values, visible_tokens(3, 7), 0.3, torch.arange(5.0))
    for name in ROWS:
        assert_close(getattr(got, name), getattr(expected, name), rtol=16 * 2**-53, atol=16 * 2**-53)


def test_visible_tokens():
    """Two queries at the end of four tokens; then three of which the first is before the first token."""
    assert visible_tokens(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    assert visible_tokens(2, 4, window=2).tolist() == [[False, True, True, False], [False, False, True, True]]
    assert visible_tokens(3, 2).tolist() == [[False, False], [True, False], [True, True]]


def test_nothing_to_see():
    query, keys, values = make(2, 0, 4, 2)
    got = attend(query, keys, values, visible_tokens(2, 0), 0.3)
    assert (got.out == 0).all() and (got.lse == -torch.inf).all()
    got = attend(query, keys, values, visible_tokens(2, 0), 0.3, torch.arange(4.0))
    assert (got.out == 0).all() and (got.lse == torch.arange(4.0)).all()


def test_gather_reads_only_needed_tokens():
    cache = torch.arange(12).view(6, 2)
    assert gather_pages(cache, torch.tensor([4, 1, 10**9]), 3).tolist() == [8, 9, 2]
    assert gather_pages(cache, torch.tensor([10**9]), 0).tolist() == []


def test_agreement_separates_right_from_wrong():
    """A result rounded to its type agrees; one off by four times the bound does not, nor a NaN, nor another shape."""
    query, keys, values = make(3, 63, 4, 2)
    expected = attend(query, keys, values, visible_tokens(3, 63), 0.3)
    sizes = {"head_size": 5, "num_tokens": 63}
    bound, lse_bound = error_bounds(expected, torch.float16, **sizes)
    out, lse = expected.out.half(), expected.lse.float()
    assert agrees((out, lse), expected, **sizes)
    assert not agrees(((expected.out + 4 * bound).half(), lse), expected, **sizes)
    assert not agrees((out, (expected.lse + 4 * lse_bound).float()), expected, **sizes)
    assert not agrees((out * torch.nan, lse), expected, **sizes)
    assert not agrees((out[:1], lse), expected, **sizes)
    special = Attended(expected.out * torch.nan, expected.lse * torch.nan, expected.value_size, expected.score_size)
    assert agrees((out * torch.nan, lse * torch.nan), special, **sizes)
    assert not agrees((out, lse), special, **sizes)


def test_the_bound_is_small():
    """For weights that average 63 values, half a percent of the largest value at float16."""
    query, keys, values = make(3, 63, 4, 2)
    expected = attend(query, keys, values, visible_tokens(3, 63), 0.3)
    bound, _ = error_bounds(expected, torch.float16, head_size=5, num_tokens=63)
    assert bound.max() < 2**-9 * values.abs().max()


@pytest.mark.parametrize("window", [None, 2])
def test_mass_is_the_cpu_kernels(window):
    """Both packages have one definition of out, lse and mass, for grouped heads with and without a window."""
    query, keys, values = make(3, 7, 4, 2, value_size=5)
    visible = visible_tokens(3, 7, window)
    got = attend(query, keys, values, visible, 0.3)
    mass = mass_of(query, keys, got.lse, visible, 0.3, most_slots=9)
    heads_first = [tensor.transpose(0, 1)[None].numpy() for tensor in (query, keys, values)]
    expected = attention_ref(*heads_first, 0.3, window or 0)
    tolerance = {"rtol": 32 * 2**-53, "atol": 32 * 2**-53}
    assert_close(got.out.transpose(0, 1), expected.out[0], **tolerance)
    assert_close(got.lse.T, expected.lse[0], **tolerance)
    assert_close(mass.weight[:, :7], expected.mass[0], **tolerance)
    assert (mass.weight[:, 7:] == 0).all()
    assert_close(mass.weight.sum(), 3 * 4, **tolerance)
    of_last = mass_of(query[1:], keys, got.lse[1:], visible[1:], 0.3)
    lse = expected.lse[:, :, 1:]
    assert_close(
        of_last.weight, key_mass_ref(heads_first[0][:, :, 1:], heads_first[1], lse, 0.3, window or 0)[0], **tolerance
    )


def test_mass_agreement_separates_right_from_wrong():
    query, keys, values = make(3, 63, 4, 2)
    visible = visible_tokens(3, 63)
    attended = attend(query, keys, values, visible, 0.3)
    expected = mass_of(query, keys, attended.lse, visible, 0.3)
    sizes = {"head_size": 5, "num_tokens": 63}
    bound, mass = mass_bound(expected, **sizes), expected.weight.float()
    assert mass_agrees(mass, expected, **sizes) and (bound < 2**-12 * expected.weight + 2**-120).all()
    assert not mass_agrees((expected.weight + 4 * bound).float(), expected, **sizes)
    assert not mass_agrees(mass * torch.nan, expected, **sizes)
    results = attended.out.half(), attended.lse.float()
    wanted = replace(attended, mass=expected)
    assert agrees((*results, mass), wanted, **sizes) and agrees((*results, None), attended, **sizes)
    assert not agrees((*results, None), wanted, **sizes) and not agrees((*results, mass), attended, **sizes)
    assert not agrees((*results, 1.1 * mass), wanted, **sizes)
