"""Which experts each token gets: the router's logits as scores, and the choice among them, in torch."""

from collections.abc import Callable

import torch
from torch import Tensor

from qbench.runtime.layers.activations import sigmoid
from quant.models import MoeConfig
from quant.models.moe import LEAST_SUM

SCORING: dict[str, Callable[[Tensor], Tensor]] = {"softmax": lambda logits: logits.softmax(-1), "sigmoid": sigmoid}


class Routing:
    """choice_bias  [E] added to the scores to choose, or None"""

    def __init__(self, config: MoeConfig, choice_bias: Tensor | None = None) -> None:
        self.config = config
        self.choice_bias = choice_bias

    def scores(self, logits: Tensor) -> Tensor:
        """The router's score of every expert for every token, from 0 to 1: [M, E] -> [M, E]"""
        return SCORING[self.config.scoring](logits)

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's experts, the best first, and the weights of their outputs: [M, E] -> [M, k] int64, [M, k]

        source   the bias that is in the choice alone: DeepSeek-V3, arXiv:2412.19437, section 2.1.2
        """
        config, scores = self.config, self.scores(logits)
        preferred = self._in_best_groups(scores if self.choice_bias is None else scores + self.choice_bias)
        chosen = preferred.topk(config.num_experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if config.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True).clamp_min(LEAST_SUM)
        return chosen, weights if config.routed_scaling_factor == 1 else weights * config.routed_scaling_factor

    def _in_best_groups(self, scores: Tensor) -> Tensor:
        """-inf for the experts outside the groups whose few best experts score highest together.

        source  the best one: DeepSeek-V2, arXiv:2405.04434, 2.2.2; the sum of several: DeepSeek-V3, arXiv:2412.19437
        """
        if self.config.num_groups == 1:
            return scores
        grouped = scores.unflatten(-1, (self.config.num_groups, -1))  # [M, G, E / G]
        of_group = grouped.topk(self.config.best_of_group, dim=-1).values.sum(-1)  # [M, G]
        best = of_group.topk(self.config.groups_per_token, dim=-1).indices
        chosen = torch.zeros(grouped.shape[:2], dtype=torch.bool).scatter(1, best, True)
        return grouped.masked_fill(~chosen[..., None], -torch.inf).flatten(1)
