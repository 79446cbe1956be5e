"""The cost of modes against a count pair by pair, and the mode that is taken."""

import pytest
from support.architectures import small_config

from qbench.runtime.attention.mla_costs import (
    COSTS,
    PlanCosts,
    compressed_terms,
    elided_terms,
    nanoseconds,
    seen_pairs,
)
from qbench.runtime.attention.mla_modes import choose_mode
from quant.models import MlaConfig, ModelConfig

REFERENCE = MlaConfig(0, 128, 64, 32, 64)  # ref:mla-moe, 4 heads
LITE = MlaConfig(0, 512, 128, 64, 128)  # DeepSeek-V2-Lite, 16 heads


PASSES = [(0, 5, 0), (7, 5, 0), (0, 9, 4), (3, 9, 4), (2, 9, 6), (30, 9, 4), (1, 2, 50)]


@pytest.mark.parametrize("held, new, window", PASSES)
def test_pairs_match_a_counting_loop(held, new, window):
    seen = [min(place + 1, window or place + 1) for place in range(held, held + new)]
    assert seen_pairs(held, new, window) == sum(seen)


def test_terms_by_hand():
    paired = 23 * (16 * 160 + 8 * 128) // 2  # two queries of 4 heads in a register of 16
    assert elided_terms(REFERENCE, 4, 10, 2) == {"absorbed": 2 * 4 * 128 * 128, "paired": paired}
    assert elided_terms(REFERENCE, 4, 10, 40)["paired"] == (400 + 820) * 16 * (160 + 128) // 4
    assert elided_terms(LITE, 17, 0, 1)["paired"] == 32 * 576 + 20 * 512
    anew = {"calls": 1, "made": 12 * 4 * 128 * 128, "moved": 12 * 4 * 160, "scored": 2 * 2 * 12 * 4 * 96}
    assert compressed_terms(REFERENCE, 4, 10, 2) == anew
    assert compressed_terms(REFERENCE, 4, 10, 2, window=5)["moved"] == 6 * 4 * 160
    assert nanoseconds(anew, PlanCosts(9, 9, 1, 2, 0, 0)) == 1 + 2 * anew["made"]


@pytest.mark.parametrize("sizes, heads", [(REFERENCE, 4), (LITE, 16)], ids=["ref:mla-moe", "deepseek-v2-lite"])
def test_the_cheaper_plan_is_taken(sizes, heads):
    for held in (0, 100, 900, 4000):
        for new in (2, 30, 100, 500):
            few, many = (
                nanoseconds(terms(sizes, heads, held, new), COSTS) for terms in (elided_terms, compressed_terms)
            )
            assert choose_mode(sizes, heads, held, new).name == ("elided" if few <= many else "compressed")
    assert choose_mode(sizes, heads, 100_000, 1).name == "elided"


def test_many_tokens_of_large_sizes_are_decompressed_again():
    assert choose_mode(LITE, 16, 4000, 90).name == "elided"
    assert choose_mode(LITE, 16, 4000, 200).name == "compressed"
    assert choose_mode(LITE, 16, 4000, 200, window=4).name == "elided", "of a window few pairs are seen"


def test_small_sizes_are_no_exception():
    config = ModelConfig.from_hf(small_config("deepseek2"))
    assert choose_mode(config.mla, config.num_heads, 0, 2).name == "elided"
