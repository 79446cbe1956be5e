import math

import numpy as np
import pytest
from support.blocks import blocks as block_document
from support.close import assert_close

from qbench.measure.quality_figures import Blocks
from qbench.statistics.paired import kld_difference, kld_ratio, perplexity_ratio, same_top_difference
from quant.errors import InputError


def blocks(**sums) -> Blocks:
    return Blocks.from_json(block_document(**sums))


def test_ratio_by_hand():
    a = blocks(tokens=[10, 30], nll=[20.0, 60.0])
    b = blocks(tokens=[10, 30], nll=[24.0, 64.0])
    assert_close(perplexity_ratio(a, b).value, math.exp(8 / 40), rtol=1e-15)


def test_a_perplexity_by_the_word_has_a_ratio_by_the_word():
    a = blocks(tokens=[10, 30], nll=[20.0, 60.0], units=[4, 12])
    b = blocks(tokens=[10, 30], nll=[24.0, 64.0], units=[4, 12])
    assert_close(perplexity_ratio(a, b).value, math.exp(8 / 16), rtol=1e-15)


def test_differences_by_hand():
    a = blocks(tokens=[10, 30], kld=[1.0, 2.0], same_top=[9.0, 27.0])
    b = blocks(tokens=[10, 30], kld=[1.5, 5.5], same_top=[8.0, 24.0])
    assert_close(kld_difference(a, b).value, 4 / 40)
    assert_close(same_top_difference(a, b).value, -4 / 40)


def test_a_ratio_of_divergences_is_that_of_their_sums():
    a = blocks(tokens=[10, 30], kld=[1.0, 3.0])
    b = blocks(tokens=[10, 30], kld=[0.5, 1.5])
    assert_close(kld_ratio(a, b).value, 0.5)
    assert kld_ratio(a, b).p_value == kld_difference(a, b).p_value


def test_a_ratio_of_divergences_knows_its_spread():
    rng = np.random.default_rng(2)
    tokens = np.full(24, 100)
    hard = rng.lognormal(0, 1, 24)  # some text is harder, for either model
    ratio = kld_ratio(blocks(tokens=tokens, kld=hard), blocks(tokens=tokens, kld=hard * rng.normal(0.5, 0.05, 24)))
    assert 0.4 < ratio.low < 0.5 < ratio.high < 0.6 and ratio.p_value < 0.01


def test_effects_common_to_both_cancel():
    rng = np.random.default_rng(0)
    tokens = rng.integers(100, 1000, 24)
    text = tokens * rng.normal(2.0, 0.5, 24)  # some text is harder, for either model
    ratio = perplexity_ratio(
        blocks(tokens=tokens, nll=text), blocks(tokens=tokens, nll=text + tokens * rng.normal(0.01, 0.002, 24))
    )
    assert 1 < ratio.low < ratio.high < 1.02 and ratio.p_value < 0.001


def test_swapped_sides_give_the_reciprocal():
    rng = np.random.default_rng(1)
    a, b = (blocks(tokens=np.full(20, 50), nll=rng.normal(100, 10, 20)) for _ in range(2))
    forth, back = perplexity_ratio(a, b), perplexity_ratio(b, a)
    assert_close([back.value, back.low, back.high], [1 / forth.value, 1 / forth.high, 1 / forth.low], rtol=1e-12)


def test_blocks_that_do_not_pair():
    with pytest.raises(InputError, match="2 windows of 3 tokens and 1 windows of 3 tokens"):
        perplexity_ratio(blocks(tokens=[1, 2], nll=[1, 1]), blocks(tokens=[3], nll=[2]))
