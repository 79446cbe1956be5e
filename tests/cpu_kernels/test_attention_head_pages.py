"""Attention in which each kv head reads pages of its own."""

import numpy as np
import pytest
from support.attention import FORMATS, filled, normal, softmax_scale

OP = "attention"
PAGE, SIZES = 16, (2, 3, 160, 32)  # sequences, kv heads, tokens, head_dim


def chosen_pages(table: np.ndarray, seed: int = 4, count: int = 5) -> np.ndarray:
    """[B, G, count] int32: of each head other pages of its sequence, in text order; the table ends in a spare one"""
    rng = np.random.default_rng(seed)
    chosen = [[np.sort(rng.permutation(len(row) - 1)[:count]) for _ in range(SIZES[1])] for row in table]
    return np.stack([row[its] for row, its in zip(table, chosen, strict=True)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_head_reads_only_its_pages(isa, name):
    batch, heads, _, head_dim = SIZES
    held = filled(name, *(normal(seed, *SIZES) for seed in (1, 2)), page_size=PAGE)
    pages, ends = chosen_pages(held.table), np.array([80, 70])
    q = normal(3, batch, 2 * heads, 1, head_dim)
    out, mass = np.full_like(q, np.nan), np.full((batch, heads, 80), np.nan, np.float32)
    held.store.attend(q, pages, ends, out, softmax_scale(q), isa=isa, mass=mass)
    for g in range(heads):
        # The same pages for all heads, of which this one's result counts.
        alone, its = np.full_like(q, np.nan), np.empty_like(mass)
        held.store.attend(q, np.ascontiguousarray(pages[:, g]), ends, alone, softmax_scale(q), isa=isa, mass=its)
        own = slice(2 * g, 2 * g + 2)
        assert np.array_equal(out[:, own], alone[:, own])
        assert np.array_equal(mass[:, g], its[:, g])
    assert not np.array_equal(pages[:, 0], pages[:, 1])


def test_pages_of_heads_are_checked():
    held = filled("f32", *(normal(seed, *SIZES) for seed in (1, 2)), page_size=PAGE)
    q = normal(3, SIZES[0], 6, 1, SIZES[3])
    pages, out = chosen_pages(held.table), np.empty_like(q)
    pages[1, 2, 4] = held.store.page_size * 10_000
    with pytest.raises(ValueError, match="block_table: got page 160000"):
        held.store.attend(q, pages, np.array([80, 80]), out, 1.0)
    with pytest.raises(ValueError, match=r"block_table: .*expected contiguous int32 \[B, G, pages\]"):
        held.store.attend(q, pages[:, :2].copy(), np.array([80, 80]), out, 1.0)
    held.store.attend(q, pages, np.array([80, 60]), out, 1.0)  # a page that no query reads may be any
    new = np.zeros((SIZES[0], SIZES[1], 1, SIZES[3]), np.float32)
    with pytest.raises((ValueError, TypeError), match="block_table"):
        held.store.append(new, new, pages, np.array([80, 60]))
