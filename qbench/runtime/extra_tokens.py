"""Tokens for experts that calibration text reaches too rarely: the next best by the router's own scores."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from qbench.runtime.layers.moe import ExpertFeedForward


def extra_tokens(experts: ExpertFeedForward, batches: Iterable[Tensor], wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """For each expert, the tokens that score highest for it among those that were not routed to it.

    batches  inputs of the experts, [n, K] each; how tokens are cut into batches does not matter
    wanted   expert -> how many tokens
    returns  expert -> [min(wanted, tokens there are), K], best first
    """
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for rows in batches:
        scores = experts.scores(rows)  # [n, E]
        chosen, _ = experts.choose(rows)
        others = scores.scatter(1, chosen, -1.0)  # below every probability: the expert's own tokens
        for expert, number in wanted.items():
            best = _best(others[:, expert], rows, number)
            if expert in found:
                both_scores, both_rows = (torch.cat(both) for both in zip(found[expert], best, strict=True))
                best = _best(both_scores, both_rows, number)
            found[expert] = best
    return {expert: rows for expert, (_, rows) in found.items()}


def _best(scores: Tensor, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """At most `number` rows of the highest scores that are no mark of an own token; of equals, the earlier."""
    order = scores.argsort(descending=True, stable=True)[:number]
    order = order[scores[order] >= 0]
    return scores[order], rows[order]
