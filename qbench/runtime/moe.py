"""Mixture of experts: each token passes through the few feed-forward nets that its router scores highest."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qbench.runtime.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.fused import FusedLinears
from qbench.runtime.norm import RMSNorm
from quant.models import MoeConfig


class ExpertFeedForward:
    """sum over the chosen experts of probability * expert(x); experts add in ascending order, so sums repeat exactly.

    One call of cpu_kernels where they have packed all experts, else an expert after the other, with the same bits; but
    for f16, whose products are exact for few tokens of an expert and in bfloat16 for many, where such a call, which
    takes its tokens in pieces, and an expert by itself meet different numbers of them.

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
        self.packed = pack_experts(experts, shared)

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> Tensor:
        rows = (x if norm is None else norm(x)).flatten(0, -2)  # [M, K]
        scores = self.scores(rows)  # [M, E]
        y = (self._one_by_one if self.packed is None else self._at_once)(rows, scores).view_as(x)
        return y if residual is None else y.add_(residual)

    def _at_once(self, rows: Tensor, scores: Tensor) -> Tensor:
        weights, chosen = self.choose(scores)  # [M, k]
        return torch.from_numpy(self.packed.forward(rows.contiguous().numpy(), chosen.numpy(), weights.numpy()))

    def _one_by_one(self, rows: Tensor, scores: Tensor) -> Tensor:
        y = torch.zeros_like(rows)
        for expert, tokens, weights in self.routes(scores):
            y.index_add_(0, tokens, self.experts[expert](rows[tokens]) * weights[:, None])
        if self.shared is not None:
            y += self.shared(rows)
        return y

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


def pack_experts(experts: Sequence[FeedForward], shared: FeedForward | None) -> Any:
    """cpu_kernels' PackedExperts on the weights that the nets hold, or None where it does not run them."""
    nets = [*experts, *(() if shared is None else (shared,))]
    if not nets or not all(isinstance(net, KernelFeedForward) and net.is_one_call for net in nets):
        return None
    linears = [[linear for group in (net.gate_up, net.down) for linear, _ in group.linears] for net in nets]
    if any(group.has_bias for net in nets for group in (net.gate_up, net.down)):
        return None
    kernels = importlib.import_module("cpu_kernels").PackedExperts
    gate, up, down = ([linear.packed for linear in its] for its in zip(*linears, strict=True))
    num_shared = len(nets) - len(experts)
    return None if kernels.obstacle(gate, up, down, num_shared) else kernels(gate, up, down, num_shared)
