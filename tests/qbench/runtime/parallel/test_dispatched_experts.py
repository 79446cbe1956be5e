"""Tokens that travel to the lanes of their experts: the model of one rank, no token dropped, the formula's bytes."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.run.rank_layout import ALL_TO_ALL, RankLayout
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.runtime.parallel.experts import DispatchedExperts
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.traffic import expected_traffic
from qbench.speed.rank_bench import measure_exchange
from quant.errors import InputError

KINDS = ("mixtral", "qwen3moe", "deepseek2", "deepseek3")


def divided(lanes: int) -> RankLayout:
    return RankLayout(ep=lanes, dispatch=ALL_TO_ALL)


def source_of(kind: str, **changed: np.ndarray) -> ArraySource:
    config = small_config(kind)
    return ArraySource(config, random_weights(config) | changed)


def logits(model, batch: int) -> list[torch.Tensor]:
    """Logits of a prompt, of decode steps, of ragged rows, and of the last tokens alone."""
    tokens = torch.randint(160, (batch, 48), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(batch=batch, capacity=64)
    rows = [model(tokens[:, :20], cache)]
    rows += [model(tokens[:, at : at + 1], cache) for at in (20, 21)]
    if batch > 1:
        rows.append(model(tokens[:, 22:30], cache, num_valid=[1 + row % 8 for row in range(batch)]))
        rows.append(model(tokens[:, 30:31], cache, last_only=True))
    rows.append(model(tokens, last_only=True))
    return rows


@pytest.mark.parametrize("batch", [1, 3, 5])
@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_lanes_that_trade_tokens_are_the_model_of_one_rank(kind, lanes, batch):
    source = source_of(kind)
    truth = logits(load_model(source, RunOptions(threads=1), impl="reference"), batch)
    of_lanes = run_ranks(divided(lanes), lambda ranks: logits(model_on(ranks, source, "reference"), batch))
    for found in of_lanes:
        for one, expected in zip(found, truth, strict=True):
            # Sums of a token's experts in each of 2 layers, whose order changes, and the roundings that follow.
            assert torch.equal(one.isnan(), expected.isnan())
            bound = 2**-24 * 96**0.5 * 16 * expected.nan_to_num().abs().max()
            assert (one - expected).nan_to_num().abs().max() <= bound


def test_a_token_that_does_not_come_back_is_another_model(monkeypatch):
    """So the test above would see it."""
    source = source_of("mixtral")
    truth = logits(load_model(source, RunOptions(threads=1), impl="reference"), 3)
    trade = Ranks.trade

    def forget(ranks, sent, num_received):
        parts = trade(ranks, sent, num_received)
        hidden = source.config["hidden_size"]
        return [part * (part.shape[1] != hidden or rank == ranks.rank) for rank, part in enumerate(parts)]

    monkeypatch.setattr(Ranks, "trade", forget)
    found, _ = run_ranks(divided(2), lambda ranks: logits(model_on(ranks, source, "reference"), 3))
    assert (found[0] - truth[0]).abs().max() > truth[0].abs().max() * 1e-3


def test_no_token_is_dropped_if_all_choose_the_experts_of_one_lane():
    """Equal scores: every token chooses the same experts, so the lane that holds them computes all pairs."""
    plain = random_weights(small_config("mixtral"))
    equal = {name: np.zeros_like(weight) for name, weight in plain.items() if name.endswith(".gate.weight")}
    source = source_of("mixtral", **equal)
    tokens = torch.randint(160, (4, 9), generator=torch.Generator().manual_seed(1))
    truth = load_model(source, RunOptions(threads=1), impl="reference")(tokens)

    def work(ranks):
        return model_on(ranks, source, "reference")(tokens), ranks.traffic.num_pairs

    first, second = run_ranks(divided(2), work)
    assert torch.equal(first[0], truth) and torch.equal(second[0], truth)
    assert sorted([first[1], second[1]]) == [0, 4 * 9 * 2 * 2], "2 experts per token in each of 2 layers"


@pytest.mark.parametrize("lanes", [2, 4])
def test_bytes_match_the_tokens_that_the_routers_send_away(lanes):
    """Counted in the routers of one rank: a token travels once to each other lane that holds some of its experts."""
    source = open_subject("ref:mla-moe", RunOptions("q8_0", threads=1)).source
    tokens = torch.randint(160, (4, 24), generator=torch.Generator().manual_seed(2))
    layout = divided(lanes)

    def work(ranks):
        model = model_on(ranks, source)
        model(tokens, model.new_cache(batch=4))
        config = model.config
        formula = expected_traffic(
            layout, ranks.rank, ranks.traffic, exchanges=model.exchanges, hidden_size=config.hidden_size
        )
        return (ranks.traffic.num_bytes, ranks.traffic.num_messages), formula, ranks.traffic.num_away, config

    found = run_ranks(layout, work)
    assert all(sent == formula for sent, formula, _, _ in found)
    config = found[0][3]
    width, k = config.hidden_size, config.moe.num_experts_per_token
    num_layers = config.num_layers - config.moe.num_dense_layers
    away = sum(each[2] for each in found)
    by_hand = 4 * (away * (2 * width + 2 * k) + lanes * (lanes - 1) * num_layers + (lanes - 1) * width * tokens.numel())
    assert sum(sent[0] for sent, *_ in found) == by_hand
    most = tokens.numel() * num_layers * min(k, lanes - 1)
    assert away <= most, "never more often than to all lanes of its experts"


def test_the_number_of_sent_tokens_matches_the_routers_of_one_rank(monkeypatch):
    source = source_of("qwen3moe")
    tokens = torch.randint(160, (4, 24), generator=torch.Generator().manual_seed(2))
    whole = load_model(source, RunOptions(threads=1), impl="reference")
    chosen = []
    for block in whole.blocks:
        net, choose = block.feed_forward, block.feed_forward.choose
        net.choose = lambda rows, choose=choose: chosen.append(choose(rows)) or chosen[-1]
    whole(tokens)
    num_experts = whole.config.moe.num_experts
    lane_of_row = torch.arange(4).repeat_interleave(24) // 2
    expected = [0, 0]
    for experts, _ in chosen:
        lanes = experts // (num_experts // 2)
        for lane in range(2):
            expected[lane] += int((lanes[lane_of_row == lane] == 1 - lane).any(1).sum())

    def work(ranks):
        model = model_on(ranks, source, "reference")
        model(tokens, model.new_cache(batch=4))
        return ranks.traffic.num_away, ranks.traffic.num_guests

    (first, second) = run_ranks(divided(2), work)
    assert [first[0], second[0]] == expected and [second[1], first[1]] == expected


def test_the_bench_counts_pairs_of_each_lane():
    case = SpeedWork(pp=16, tg=4, depth=3, repetitions=1, batch=4)
    source = open_subject("ref:mla-moe", RunOptions(threads=1)).source
    moe = load_model(source, RunOptions(threads=1)).config.moe

    def work(ranks):
        model = model_on(ranks, source)
        found = measure_exchange(model, case, "pp")
        return found, sum(isinstance(block.feed_forward, DispatchedExperts) for block in model.blocks)

    for found, num_layers in run_ranks(divided(2), work):
        assert sum(found.experts.pairs) == 4 * 16 * moe.num_experts_per_token * num_layers
        assert found.experts.skew == max(found.experts.pairs) / (sum(found.experts.pairs) / 2)
        assert found.bytes_per_token == found.expected_bytes_per_token
        assert found.messages_per_pass == found.expected_messages_per_pass


@pytest.mark.parametrize("division", [{}, {"tp": 2}, {"ep": 2, "pp": 2}, {"sp": 2}])
def test_only_lanes_of_experts_dispatch(division):
    with pytest.raises(InputError, match="dispatch all-to-all is for lanes of experts alone"):
        RankLayout(**division, dispatch=ALL_TO_ALL)


def test_an_unknown_dispatch():
    with pytest.raises(InputError, match="dispatch 'mail' is unknown; known: sum, all-to-all"):
        RankLayout(ep=2, dispatch="mail")
