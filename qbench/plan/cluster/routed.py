"""Tokens of a forward pass, and how they travel to experts if a router chooses all equally often."""

from dataclasses import dataclass, replace
from math import comb

from qbench.run.divisions import borders
from qbench.run.rank_layout import ALL_TO_ALL, RankLayout
from qbench.runtime.parallel.traffic import Exchanges, Traffic
from quant.models import ModelConfig
from quant.present import present


@dataclass(frozen=True, slots=True)
class Tokens:
    """One forward pass: `batch` sequences of `count` new tokens each, after `depth` that the cache holds."""

    batch: int
    count: int
    depth: int

    @property
    def total(self) -> int:
        return self.batch * self.count


def own_rows(layout: RankLayout, batch: int) -> list[int]:
    """Sequences whose attention each lane computes, as `rows_of_lanes` divides them"""
    if layout.dispatch != ALL_TO_ALL:
        return [batch] * layout.num_lanes
    if batch == 1:
        return [1] + [0] * (layout.num_lanes - 1)
    return [rows.stop - rows.start for rows in borders(batch, 1, layout.num_lanes)]


def most_own(layout: RankLayout, tokens: Tokens) -> Tokens:
    """Tokens of the lane with most of them"""
    return replace(tokens, batch=max(own_rows(layout, tokens.batch)))


def chance(config: ModelConfig, layout: RankLayout) -> float:
    """The share of tokens that choose some expert of a lane, on average over the lanes"""
    moe = present(config.moe)
    pick = moe.num_experts_per_token
    sizes = [its.stop - its.start for its in borders(moe.num_experts, 1, layout.num_lanes)]
    missed = [comb(moe.num_experts - size, pick) / comb(moe.num_experts, pick) for size in sizes]
    return 1 - sum(missed) / len(missed)


def traveling(config: ModelConfig, layout: RankLayout, exchanges: Exchanges, tokens: Tokens) -> list[float]:
    """Values of each message from the lane with most tokens to another lane, in the order of a forward pass."""
    own = most_own(layout, tokens)
    out, back = (values * own.total * chance(config, layout) for values in exchanges.of_away)
    return [1.0, out, back] * _routed_layers(config) + [float(config.hidden_size * own.batch)]


def routed_traffic(config: ModelConfig, layout: RankLayout, lane: int, batch: int) -> Traffic:
    """The counts of a lane in a decode step, to the nearest token"""
    rows, likely, layers = own_rows(layout, batch), chance(config, layout), _routed_layers(config)
    own, others = rows[lane], layout.num_lanes - 1
    rest = batch - own
    partners = sum(count > 0 for other, count in enumerate(rows) if other != lane)
    return Traffic(
        num_passes=1,
        num_parts=1,
        num_counts=layers,
        num_away=round(layers * own * others * likely),
        num_guests=round(layers * rest * likely),
        num_bundles=layers * (others * (own > 0) + partners),
        num_shown=own,
        num_shows=int(own > 0),
    )


def _routed_layers(config: ModelConfig) -> int:
    return sum(config.layer_kind(layer) == "moe" for layer in range(config.num_layers))
