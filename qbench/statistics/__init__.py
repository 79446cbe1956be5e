"""Differences with their intervals: paired wherever both sides saw the same text, items or moments."""

from qbench.statistics.cell import Cell, Floors, judge, with_floors
from qbench.statistics.estimate import Estimate
from qbench.statistics.flips import accuracy_difference
from qbench.statistics.holm import holm
from qbench.statistics.paired import Together, kld_difference, kld_excess, perplexity_ratio, same_top_difference
from qbench.statistics.power import detectable_difference, detectable_flips, detectable_ratio
from qbench.statistics.proportion import share_interval
from qbench.statistics.protocols import require_same_protocol
from qbench.statistics.speed import speed_ratio
from qbench.statistics.spread import spread
from qbench.statistics.studentized import block_mean, token_mean
from qbench.statistics.verdict import verdict

__all__ = [
    "Cell",
    "Estimate",
    "Floors",
    "Together",
    "accuracy_difference",
    "block_mean",
    "detectable_difference",
    "detectable_flips",
    "detectable_ratio",
    "holm",
    "judge",
    "kld_difference",
    "kld_excess",
    "perplexity_ratio",
    "require_same_protocol",
    "same_top_difference",
    "share_interval",
    "speed_ratio",
    "spread",
    "token_mean",
    "verdict",
    "with_floors",
]
