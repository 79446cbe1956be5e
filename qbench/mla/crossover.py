"""From how many new tokens on it is faster to make all keys and values anew than to absorb their up-projections."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from qbench.runtime.layers.latent_plans import crossover_tokens
from quant.models import MlaConfig

FEW, MANY = "elided", "compressed"


def measured_crossovers(rows: Sequence[dict[str, Any]], sizes: MlaConfig) -> list[dict[str, Any]]:
    """For each context and batch of the rows of `measure_plans`, where the two plans' times cross.

    tokens  new ones of a sequence, between the two measured numbers around it as logarithms are; None where one plan
            is faster throughout
    factor  that over what operations alone say
    """
    times: dict[tuple[int, int], dict[int, dict[str, float]]] = {}
    for row in rows:
        times.setdefault((row["context"], row["batch"]), {}).setdefault(row["tokens"], {})[row["plan"]] = row["ms"]
    by_operations = crossover_tokens(sizes)
    found = []
    for (context, batch), by_tokens in times.items():
        tokens = crossing({count: ms[FEW] / ms[MANY] for count, ms in by_tokens.items() if FEW in ms and MANY in ms})
        factor = None if tokens is None or not math.isfinite(by_operations) else tokens / by_operations
        found.append({"context": context, "batch": batch, "tokens": tokens, "factor": factor})
    return found


def crossing(ratios: dict[int, float]) -> float | None:
    """Where the ratio goes from 1 or less to above 1, for the first time."""
    points = sorted(ratios.items())
    for (left, low), (right, high) in pairwise(points):
        if low <= 1 < high:
            share = -math.log(low) / (math.log(high) - math.log(low))
            return left * (right / left) ** share
    return None
