"""Mixture of experts: each token passes through the few feed-forward nets that its router scores highest."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qbench.runtime.layers.activations import sigmoid
from qbench.runtime.layers.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.layers.fused import FusedLinears, as_outputs, kernel_arguments
from qbench.runtime.layers.norm import Norm
from quant.models import MoeConfig
from quant.models.moe import LEAST_SUM

SCORING: dict[str, Callable[[Tensor], Tensor]] = {"softmax": lambda logits: logits.softmax(-1), "sigmoid": sigmoid}


@dataclass(frozen=True, slots=True)
class ExpertParts:
    """The parts of a routed net.

    experts      those that this process holds, in the order of their numbers
    shared       a net that every token passes through as well, or None
    choice_bias  [E] added to the scores to choose, or None
    """

    config: MoeConfig
    router: FusedLinears
    experts: Sequence[FeedForward]
    shared: FeedForward | None = None
    choice_bias: Tensor | None = None


class ExpertFeedForward:
    """sum over the chosen experts of probability * expert(x); experts add in ascending order, so sums repeat exactly.

    Called, one expert runs after the other in Python. `step` has the same bits, except for f16: its products are exact
    for few tokens of an expert and in bfloat16 for many, and a single call takes its tokens in pieces.

    source   Shazeer et al. 2017, arXiv:1701.06538, section 2; softmax before the choice, as Qwen3-MoE does it
    """

    def __init__(self, parts: ExpertParts) -> None:
        self.parts = parts
        self.config, self.router = parts.config, parts.router
        self.routing = Routing(parts.config, parts.choice_bias)
        self.kernel_router = kernel_router(parts.config, parts.router, parts.choice_bias)
        self.experts, self.shared = parts.experts, parts.shared
        self.packed = pack_experts(parts.experts, parts.shared)

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> Tensor:
        rows = (x if norm is None else norm(x)).flatten(0, -2)  # [M, K]
        y = self._one_by_one(rows).view_as(x)
        return y if residual is None else y.add_(residual)

    @property
    def is_packed(self) -> bool:
        """Whether cpu_kernels have packed all experts and the router."""
        return self.packed is not None and self.kernel_router is not None

    @property
    def step(self) -> Callable[..., Tensor] | None:
        """All experts as one call of cpu_kernels; else one after the other, each as one call; None if no expert can
        be.
        """
        if self.is_packed:
            return self._in_one_call
        nets = (*self.experts, self.shared)
        if all(getattr(net, "step", None) is None for net in nets):
            return None
        by_steps = copy(self)
        *by_steps.experts, by_steps.shared = (getattr(net, "step", None) or net for net in nets)
        return by_steps

    def _in_one_call(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> Tensor:
        return as_outputs(self.packed.feed_forward(self.kernel_router, *kernel_arguments(x, norm, residual)), x)

    def _one_by_one(self, rows: Tensor) -> Tensor:
        y = torch.zeros_like(rows)
        for expert, tokens, weights in self.routes(rows):
            y.index_add_(0, tokens, self.experts[expert](rows[tokens]) * weights[:, None])
        if self.shared is not None:
            y += self.shared(rows)
        return y

    def scores(self, rows: Tensor) -> Tensor:
        """The router's score of every expert for every token, from 0 to 1: [M, K] -> [M, E] float32"""
        (logits,) = self.router(rows)
        return self.routing.scores(logits)

    def choose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's experts, the best first, and the weights of their outputs: [M, K] -> [M, k] int64, [M, k]"""
        (logits,) = self.router(rows)
        if self.kernel_router is None:
            return self.routing.choose(logits)
        chosen, weights = self.kernel_router.choose(logits.numpy())
        return torch.from_numpy(chosen), torch.from_numpy(weights)

    def routes(self, rows: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(expert, its tokens [n] int64 ascending, the weight of its output [n]) for every expert that has tokens."""
        return self.by_expert(*self.choose(rows))

    def by_expert(self, chosen: Tensor, weights: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The same of experts [M, k] that are chosen, and their weights [M, k]"""
        by_expert = chosen.flatten().argsort(stable=True)  # places in [M * k], those of one expert together
        tokens, weights = by_expert // chosen.shape[1], weights.flatten()[by_expert]
        counts = chosen.flatten().bincount(minlength=self.config.num_experts).tolist()
        each = zip(counts, tokens.split(counts), weights.split(counts), strict=True)
        return ((expert, its, weight) for expert, (count, its, weight) in enumerate(each) if count)


def pack_experts(experts: Sequence[FeedForward], shared: FeedForward | None) -> Any:
    """cpu_kernels' PackedExperts on the weights that the nets hold, or None if it does not run them."""
    nets = [*experts, *(() if shared is None else (shared,))]
    if not nets or not all(isinstance(net, KernelFeedForward) and net.step is not None for net in nets):
        return None
    linears = [[linear for group in (net.gate_up, net.down) for linear, _ in group.linears] for net in nets]
    if any(group.has_bias for net in nets for group in (net.gate_up, net.down)):
        return None
    kernels = importlib.import_module("cpu_kernels").PackedExperts
    gate, up, down = ([linear.packed for linear in its] for its in zip(*linears, strict=True))
    num_shared = len(nets) - len(experts)
    return None if kernels.obstacle(gate, up, down, num_shared) else kernels(gate, up, down, num_shared)


def kernel_router(config: MoeConfig, router: FusedLinears, choice_bias: Tensor | None) -> Any:
    """cpu_kernels' Router, or None if it has not packed the router's weight."""
    if not isinstance(router, FusedLinears) or router.group is None:
        return None
    rules = (config.num_experts_per_token, config.scoring, config.num_groups, config.groups_per_token)
    bias = None if choice_bias is None else choice_bias.numpy()
    what_counts = (config.best_of_group, bias, config.norm_topk_prob, config.routed_scaling_factor)
    return importlib.import_module("cpu_kernels").Router(router.group, *rules, *what_counts)


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
