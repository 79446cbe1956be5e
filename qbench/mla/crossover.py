"""From how many new tokens on it is faster to make all keys and values again than to absorb their up-projections."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from qbench.mla.measure import ModePoint
from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, choose_mode
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present

FEW, MANY = ELIDED, COMPRESSED
MOST_TOKENS = 4096  # of a forward pass; no measured crossing is above 300


@dataclass(frozen=True, slots=True)
class Crossover(JsonData):
    """Where the two modes' times cross at one context and batch.

    tokens  new ones of a sequence, between the two measured numbers around it as logarithms are; None if one mode
            is faster throughout
    picked  from how many on the runtime takes the mode of many, whatever was measured here; None: from no number on
    """

    context: int
    batch: int
    tokens: float | None
    picked: int | None


def measured_crossovers(rows: Sequence[ModePoint], config: ModelConfig) -> list[Crossover]:
    """One for each context and batch of the rows."""
    times: dict[tuple[int, int], dict[int, dict[str, float]]] = {}
    for row in rows:
        times.setdefault((row.context, row.batch), {}).setdefault(row.tokens, {})[row.mode] = row.ms
    found = []
    for (context, batch), by_tokens in times.items():
        tokens = crossing({count: ms[FEW] / ms[MANY] for count, ms in by_tokens.items() if FEW in ms and MANY in ms})
        picked = picked_crossover(config, context)
        found.append(Crossover(context, batch, tokens, picked))
    return found


def picked_crossover(config: ModelConfig, held: int) -> int | None:
    """The fewest new tokens of a sequence that holds `held` for which the runtime makes keys and values again; None if
    it does not do so for MOST_TOKENS.
    """
    counts = range(2, min(config.max_positions - held, MOST_TOKENS) + 1)
    return next(
        (new for new in counts if choose_mode(present(config.mla), config.num_heads, held, new).name == MANY), None
    )


def crossing(ratios: dict[int, float]) -> float | None:
    """Where the ratio goes from 1 or less to above 1, for the first time."""
    points = sorted(ratios.items())
    for (left, low), (right, high) in pairwise(points):
        if low <= 1 < high:
            share = -math.log(low) / (math.log(high) - math.log(low))
            return left * (right / left) ** share
    return None
