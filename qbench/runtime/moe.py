"""Mixture of experts: each token passes through the few feed-forward nets that its router scores highest."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from qbench.runtime.feed_forward import FeedForward
from qbench.runtime.fused import FusedLinears
from qbench.runtime.norm import RMSNorm
from quant.models import MoeConfig


class ExpertFeedForward:
    """sum over the chosen experts of probability * expert(x); experts add in ascending order, so sums repeat exactly.

    shared   a net that every token passes through as well, or None
    source   Shazeer et al. 2017, arXiv:1701.06538, section 2; softmax before the choice, as Qwen3-MoE does it
    """

    def __init__(
        self,
        config: MoeConfig,
        router: FusedLinears,
        experts: Sequence[FeedForward],
        shared: FeedForward | None = None,
    ) -> None:
        self.config = config
        self.router = router
        self.experts = experts
        self.shared = shared

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> Tensor:
        rows = (x if norm is None else norm(x)).flatten(0, -2)  # [M, K]
        scores = self.scores(rows)  # [M, E]
        y = torch.zeros_like(rows)
        for expert, tokens, weights in self.routes(scores):
            y.index_add_(0, tokens, self.experts[expert](rows[tokens]) * weights[:, None])
        if self.shared is not None:
            y += self.shared(rows)
        return y.view_as(x) if residual is None else y.view_as(x) + residual

    def scores(self, rows: Tensor) -> Tensor:
        """The router's probability of every expert for every token: [M, K] -> [M, E] float32"""
        (logits,) = self.router(rows)
        return logits.softmax(-1)

    def choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's experts, the likeliest first, and what their outputs count: [M, E] -> 2 x [M, k]"""
        config = self.config
        weights, chosen = self._in_best_groups(scores).topk(config.num_experts_per_token, dim=-1)
        if config.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return (weights if config.routed_scaling_factor == 1 else weights * config.routed_scaling_factor), chosen

    def _in_best_groups(self, scores: Tensor) -> Tensor:
        """0 for the experts outside the groups whose best expert scores highest. source  arXiv:2405.04434, 2.2.2"""
        if self.config.num_groups == 1:
            return scores
        grouped = scores.unflatten(-1, (self.config.num_groups, -1))  # [M, G, E / G]
        best = grouped.amax(-1).topk(self.config.groups_per_token, dim=-1).indices
        chosen = torch.zeros(grouped.shape[:2], dtype=torch.bool).scatter(1, best, True)
        return grouped.masked_fill(~chosen[..., None], 0.0).flatten(1)

    def routes(self, scores: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(expert, its tokens [n] int64 ascending, what its output counts [n]) for every expert that has tokens."""
        weights, chosen = self.choose(scores)  # [M, k]
        by_expert = chosen.flatten().argsort(stable=True)  # places in [M * k], those of one expert together
        tokens, weights = by_expert // chosen.shape[1], weights.flatten()[by_expert]
        counts = chosen.flatten().bincount(minlength=self.config.num_experts).tolist()
        each = zip(counts, tokens.split(counts), weights.split(counts), strict=True)
        return ((expert, its, weight) for expert, (count, its, weight) in enumerate(each) if count)
