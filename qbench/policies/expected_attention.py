"""Expected Attention: tokens to which future queries are expected to attend."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState, check_at_least
from qbench.policies.registry import policy
from quant.present import present


@policy("expected-attention")
@dataclass(frozen=True, kw_only=True)
class ExpectedAttention(BudgetedPolicy):
    """Scores keys by the mean weight that normally distributed future queries give them, times the value's norm.

    With q ~ N(mu, sigma) per head before rotation and R the mean rotation over the next positions,
    E[exp(q k)] = exp(scale mu R k + scale^2 k R' sigma R k / 2). The softmax runs over the keys; weights are averaged
    over the heads of a group. Generated tokens are all kept.

    budget   half of the prompt
    future   positions over which the rotation is averaged
    sinks    first tokens of the text, which stay; their queries do not enter the statistics
    epsilon  added to the weights before they are multiplied with the norm of the value

    source   Devoto et al. 2025, arXiv:2510.00636, section 3
    """

    budget: Budget = Budget(0.5, Unit.SHARE)
    future: int = 512
    sinks: int = 4
    epsilon: float = 0.0
    reads_queries = True

    def __post_init__(self) -> None:
        check_at_least("future", self.future, 1)
        check_at_least("sinks", self.sinks, 0)
        check_at_least("epsilon", self.epsilon, 0)
        super().__post_init__()

    @property
    def fewest(self) -> int:
        return self.sinks + 1

    def score(self, state: LayerState, count: int) -> Tensor:
        keys, values = state.reader.keys(), state.reader.values()  # [B, G, S, D]
        skipped = max(0, self.sinks - (state.num_seen - state.num_new))
        queries = present(state.queries)[:, :, skipped:]  # [B, H, T, D]
        mean = queries.mean(2, keepdim=True)
        centered = queries - mean
        covariance = centered.transpose(2, 3) @ centered / queries.shape[2]  # [B, H, D, D]
        turn = self._mean_rotation(state, keys.shape[-1])
        mean, covariance = mean @ turn, turn.T @ covariance @ turn
        is_sink = state.positions < self.sinks  # [B, G, S]
        grouped = keys[:, :, None]  # [B, G, 1, S, D]
        mean = mean.unflatten(1, (keys.shape[1], -1))  # [B, G, H / G, 1, D]
        covariance = covariance.unflatten(1, (keys.shape[1], -1))
        scores = state.softmax_scale * (grouped * mean).sum(-1)  # [B, G, H / G, S]
        scores = scores + state.softmax_scale**2 / 2 * ((grouped @ covariance) * grouped).sum(-1)
        weights = scores.masked_fill(is_sink[:, :, None], -torch.inf).softmax(-1).mean(2)
        return protect((weights + self.epsilon) * values.norm(dim=-1), is_sink)

    def _mean_rotation(self, state: LayerState, head_dim: int) -> Tensor:
        """[D, D]: a row vector times this is its mean rotation over the next positions"""
        identity = torch.eye(head_dim)
        angles = state.reader.rotation(state.num_seen, state.num_seen + self.future)
        if angles is None:
            return identity
        cos, sin = (each.mean(0) for each in angles)  # [R]; the rotation is linear in both
        size = len(cos)
        turned = identity.clone()
        turned[:size, :size] = identity[:size, :size] * cos + identity[:size, :size].roll(size // 2, 1) * sin
        return turned
