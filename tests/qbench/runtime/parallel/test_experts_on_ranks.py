"""Expert parallel against one rank: every kind of experts, skewed routing, and the bytes between lanes."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime import load_model
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.traffic import expected_traffic
from quant.errors import InputError

TOKENS = torch.randint(160, (2, 40), generator=torch.Generator().manual_seed(1))
KINDS = ("mixtral", "qwen3moe", "deepseek2", "deepseek3")


def on_ranks(source, layout, impl="auto", tokens=TOKENS) -> torch.Tensor:
    first, *others = run_ranks(layout, lambda ranks: model_on(ranks, source, impl)(tokens))
    assert all(torch.equal(first, other) for other in others)
    return first


def source_of(kind: str, **changed: np.ndarray) -> ArraySource:
    config = small_config(kind)
    return ArraySource(config, random_weights(config) | changed)


def tolerance(expected: torch.Tensor) -> torch.Tensor:
    # A sum of a token's experts in each of 2 layers, whose order changes, and the roundings that follow from it.
    return 2**-24 * 96**0.5 * 16 * expected.abs().max()


@pytest.mark.parametrize("layout", [RankLayout(ep=2), RankLayout(ep=4), RankLayout(ep=2, pp=2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_divided_experts_differ_by_the_order_of_sums(kind, layout):
    source = source_of(kind)
    expected = load_model(source, RunOptions(threads=1), impl="reference")(TOKENS)
    assert (on_ranks(source, layout, "reference") - expected).abs().max() <= tolerance(expected)


def test_experts_of_one_lane_alone_are_another_model(monkeypatch):
    source = source_of("mixtral")
    expected = load_model(source, RunOptions(threads=1), impl="reference")(TOKENS)
    monkeypatch.setattr(Ranks, "add", lambda ranks, x: None)
    first, _ = run_ranks(RankLayout(ep=2), lambda ranks: model_on(ranks, source, "reference")(TOKENS))
    assert (first - expected).abs().max() > tolerance(expected)


def test_no_token_is_dropped_if_all_choose_the_experts_of_one_lane():
    """Equal scores: every token chooses the first experts. The other lanes add zeros, so bits are equal."""
    plain = random_weights(small_config("mixtral"))
    equal = {name: np.zeros_like(weight) for name, weight in plain.items() if name.endswith(".gate.weight")}
    assert len(equal) == 2
    source = source_of("mixtral", **equal)
    expected = load_model(source, RunOptions(threads=1), impl="reference")(TOKENS)
    assert torch.equal(on_ranks(source, RankLayout(ep=2), "reference"), expected)


@pytest.mark.parametrize("recipe", [None, "q4_0"])
def test_bytes_and_logits_of_the_reference_model(recipe):
    """Each lane of ref:mla-moe sends one sum per layer with experts and token to the other lane."""
    source = open_subject("ref:mla-moe", RunOptions(recipe, threads=1)).source
    layout = RankLayout(ep=2)

    def work(ranks):
        model = model_on(ranks, source)
        logits, work = model(TOKENS), ranks.traffic
        hidden = model.config.hidden_size
        formula = expected_traffic(layout, ranks.rank, work, exchanges=model.exchanges, hidden_size=hidden)
        num_layers = model.config.num_layers - model.config.moe.num_dense_layers
        by_hand = (4 * hidden * num_layers * TOKENS.numel(), num_layers)
        return logits, (work.num_bytes, work.num_messages), formula, by_hand, model.weight_bytes

    several = run_ranks(layout, work)
    whole = load_model(source, RunOptions(threads=1))
    expected = whole(TOKENS)
    for logits, sent, formula, by_hand, weight_bytes in several:
        assert sent == formula == by_hand
        assert weight_bytes < whole.weight_bytes
        # A flipped code of a rounded input is a step of its scale: 2**-7 of the spread of the logits.
        assert (logits - expected).abs().max() <= expected.std() * 2**-5
    assert torch.equal(several[0][0], several[1][0])


@pytest.mark.parametrize(
    ("kind", "layout", "message"),
    [
        ("llama", RankLayout(ep=2), "ep=2 divides experts, and .* has none; use tp or pp"),
        ("mixtral", RankLayout(ep=99), "ep=99 is more than the . experts of "),
    ],
)
def test_a_model_that_cannot_be_divided(kind, layout, message):
    with pytest.raises(InputError, match=message):
        on_ranks(source_of(kind), layout)


def test_experts_and_lanes_of_heads_do_not_combine():
    with pytest.raises(InputError, match="tp 2 does not combine with ep 2 yet"):
        RankLayout(tp=2, ep=2)
