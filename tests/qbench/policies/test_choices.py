"""Policies that look at keys, values and queries, against their formulas in float64; and policies of an outsider."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from qbench.cli.main import cli
from qbench.policies import Budget, CachePolicy, LayerState, parse_policy, policy
from qbench.policies.budgeted import BudgetedPolicy
from qbench.policies.policy import LayerReader, top_slots
from qbench.policies.pyramidkv import PyramidKV
from qbench.runtime.attention.rope import rotation

HEADS, KV_HEADS, HELD, WIDTH = 4, 2, 40, 8


class Stored(LayerReader):
    """Random keys and values, and a rotation of 8 channels."""

    def __init__(self) -> None:
        make = torch.Generator().manual_seed(4)
        self.held = [torch.randn(1, KV_HEADS, HELD, WIDTH, generator=make) for _ in range(2)]

    def keys(self) -> Tensor:
        return self.held[0]

    def values(self) -> Tensor:
        return self.held[1]

    def rotation(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        return rotation(1 / 100 ** (torch.arange(WIDTH // 2) / (WIDTH // 2)), torch.arange(start, end))


def state_of(num_new: int = HELD, **changes) -> LayerState:
    positions = torch.arange(HELD).expand(1, KV_HEADS, HELD)
    queries = torch.randn(1, HEADS, num_new, WIDTH, generator=torch.Generator().manual_seed(5)) * 2
    fields = {
        "layer": 0,
        "num_layers": 4,
        "num_new": num_new,
        "num_seen": HELD,
        "num_prompt": HELD,
        "positions": positions,
        "score": torch.zeros(1, KV_HEADS, HELD),
        "tokens": torch.zeros(1, HELD, dtype=torch.int64),
        "reader": Stored(),
        "softmax_scale": WIDTH**-0.5,
        "queries": queries,
    }
    return LayerState(**fields | changes)


def best(scores: np.ndarray, count: int) -> list[int]:
    return sorted(np.argsort(-scores, kind="stable")[:count].tolist())


def test_knorm_keeps_small_keys_and_keydiff_keys_unlike_the_mean() -> None:
    state = state_of()
    keys = state.reader.keys()[0].double().numpy()
    for text, score in (
        ("knorm:12", lambda k: -np.sqrt((k**2).sum(1))),
        ("keydiff:12", lambda k: -unit(k) @ unit(unit(k).mean(0, keepdims=True))[0]),
    ):
        kept = parse_policy(text).keep(state)
        for g in range(KV_HEADS):
            assert kept[0, g].tolist() == best(score(keys[g]), 12)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def test_expected_attention_is_the_mean_of_a_log_normal_weight() -> None:
    state = state_of()
    kept = parse_policy("expected-attention:budget=12,future=30,sinks=3,epsilon=0.01").keep(state)
    keys, values = (x[0].double().numpy() for x in state.reader.held)
    queries = state.queries[0].double().numpy()
    cos, sin = (x.double().numpy() for x in state.reader.rotation(HELD, HELD + 30))
    for g in range(KV_HEADS):
        weights = np.zeros(HELD)
        for h in range(2 * g, 2 * g + 2):
            own = queries[h, 3:]
            mean, spread = own.mean(0), np.cov(own.T, bias=True)
            turns = np.zeros((WIDTH, WIDTH))  # mean over positions of the matrix that rotates a column vector
            for c, s in zip(cos, sin, strict=True):
                for i in range(WIDTH):
                    turns[i, i] += c[i] / len(cos)
                    turns[i, (i + WIDTH // 2) % WIDTH] += s[i] / len(cos)
            mean, spread = turns @ mean, turns @ spread @ turns.T
            scores = np.array([k @ mean / math.sqrt(WIDTH) + k @ spread @ k / WIDTH / 2 for k in keys[g]])
            scores[:3] = -math.inf
            weights += np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum() / 2
        scores = (weights + 0.01) * np.sqrt((values[g] ** 2).sum(1))
        scores[:3] = math.inf
        assert kept[0, g].tolist() == best(scores, 12)


def test_pyramid_budgets_fall_and_their_mean_is_the_budget() -> None:
    pyramid = PyramidKV(budget=Budget(512), window=8, beta=20)
    slots = [pyramid.slots(4096, layer, 16) for layer in range(16)]
    assert slots == sorted(slots, reverse=True)
    assert (slots[0], slots[-1]) == (round(512 * 1.95), round(512 / 20))
    assert abs(sum(slots) - 16 * 512) <= 8
    assert {pyramid.slots(600, layer, 16) for layer in range(16)} != {512}
    assert {PyramidKV(budget=Budget(512), window=64).slots(4096, layer, 16) for layer in range(16)} == {512}


def test_random_tokens_differ_by_head_layer_and_seed_and_repeat() -> None:
    def kept(text: str, layer: int = 0) -> list:
        return parse_policy(text).keep(state_of(layer=layer)).tolist()

    first = kept("random:12")
    assert first == kept("random:12")
    assert first[0][0] != first[0][1]
    assert len({str(x) for x in (first, kept("random:12,seed=1"), kept("random:12", layer=1))}) == 3
    assert all(HELD - 1 in head for head in first[0])


def test_top_slots_are_deterministic_under_ties() -> None:
    score = torch.tensor([[[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]]])
    assert top_slots(score, 4).tolist() == [[[0, 1, 2, 4]]]
    assert top_slots(score, 5).tolist() == [[[0, 1, 2, 3, 4]]]


@pytest.mark.parametrize(
    ("text", "tokens"), [("512", 512), ("25%", 1024), ("0.5", 2048), ("1KiB", 10), ("64MiB", 671088)]
)
def test_a_budget_in_any_unit_is_a_number_of_tokens(text: str, tokens: int) -> None:
    budget = Budget.parse(text)
    assert Budget.parse(str(budget)) == budget
    assert budget.in_tokens(100).of(4096) == tokens


def test_an_outsider_registers_a_policy_in_a_few_lines() -> None:
    @policy("even")
    @dataclass(frozen=True, kw_only=True)
    class Even(BudgetedPolicy):
        """Keeps tokens at even positions before those at odd ones."""

        budget: Budget = Budget(8)

        def score(self, state: LayerState, count: int) -> Tensor:
            return (state.positions % 2 == 0).float()

    made = parse_policy("even:budget=10")
    assert isinstance(made, CachePolicy)
    assert made.keep(state_of())[0, 0].tolist() == list(range(0, 20, 2))
    shown = CliRunner().invoke(cli, ["policies"]).output
    assert "even:budget=8\n    Keeps tokens at even positions before those at odd ones." in shown
    with pytest.raises(ValueError, match="registered twice"):
        policy("even")(Even)
