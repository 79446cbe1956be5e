"""FlexPrefill: blocks that cover a share of the attention weights, by the pattern that suits each head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.policies.policy import check_at_least
from qbench.prefill.block_lists import BLOCK, causal_blocks
from qbench.prefill.pattern import PrefillPattern, Prompt, check_share, last_weights, pattern, slash_sums, vertical_sums
from quant.errors import InputError


@pattern("flexprefill")
@dataclass(frozen=True)
class FlexPrefill(PrefillPattern):
    """Each head's smallest set of blocks that covers `gamma` of the weights, by estimates of two kinds.

    If products of mean queries and mean keys predict the block weights of the last queries (the square root of the
    Jensen-Shannon divergence is below tau), the head is query-aware: blocks are chosen by those products. Else columns
    and diagonals of blocks are chosen by the last queries' weights. The first column and the main diagonal are always
    listed.

    gamma   share of the weights to cover; 1: all blocks
    tau     largest distance of a query-aware head
    budget  tokens that columns, and diagonals, hold at least
    source  Lai et al. 2025, arXiv:2502.20766, algorithms 1 to 4; order of the steps as in its code
    """

    ladder = tuple(f"flexprefill:{gamma}" for gamma in (0.5, 0.7, 0.8, 0.9, 0.93, 0.95, 0.97, 0.99))

    gamma: float = 0.9
    tau: float = 0.1
    budget: int = 512

    def __post_init__(self) -> None:
        check_share("gamma", self.gamma)
        check_at_least("budget", self.budget, 1)
        if not 0 <= self.tau <= 1:
            raise InputError(f"tau is {self.tau:g}, expected a number from 0 to 1")

    def mask(self, prompt: Prompt) -> Tensor:
        num_blocks, least = prompt.num_blocks, -(-self.budget // BLOCK)
        if num_blocks <= max(2, least) or self.gamma == 1:
            return torch.ones_like(causal_blocks(prompt.num_tokens))[None]
        weights = last_weights(prompt, BLOCK)
        columns, distances = (sums / weights.shape[1] for sums in (vertical_sums(weights), slash_sums(weights)))
        mean_keys = _block_means(prompt.keys).repeat_interleave(len(prompt.q) // len(prompt.keys), 0)  # [H, N, D]
        last = prompt.softmax_scale * prompt.q[:, -weights.shape[1] :].mean(1, keepdim=True)
        predicted = (last @ mean_keys.mT)[:, 0].softmax(-1)  # [H, N]
        is_query_aware = _distance(predicted, _block_sums(columns)) < self.tau  # [H]

        counts = [_covering(sums, self.gamma) // BLOCK + 1 for sums in (columns, distances)]
        counts = [count.clamp(min=least).masked_fill(is_query_aware, least) for count in counts]
        column, diagonal = (_largest(_block_sums(s), n) for s, n in zip((columns, distances), counts, strict=True))
        index = torch.arange(num_blocks)
        back = (index[:, None] - index).clamp(min=0)  # [N, N]: blocks from a query's to a key's
        mask = column[:, None] | diagonal[:, back]
        if is_query_aware.any():
            chosen = self._by_products(prompt, mean_keys)
            mask |= chosen & is_query_aware[:, None, None]
        return mask

    def _by_products(self, prompt: Prompt, mean_keys: Tensor) -> Tensor:
        """[H, N, N]: the blocks with the largest weights of mean queries for mean keys, over all rows together"""
        scores = prompt.softmax_scale * _block_means(prompt.q) @ mean_keys.mT
        weights = scores.masked_fill(~causal_blocks(prompt.num_tokens), -torch.inf).softmax(-1).flatten(1)
        ordered, order = weights.sort(dim=1, descending=True, stable=True)
        is_within = ordered.cumsum(1) <= self.gamma * prompt.num_blocks
        return torch.zeros_like(is_within).scatter_(1, order, is_within).view(scores.shape)


def _block_means(x: Tensor) -> Tensor:
    """[H, T, D] -> [H, N, D]"""
    return torch.stack([block.mean(1) for block in x.split(BLOCK, 1)], 1)


def _block_sums(sums: Tensor) -> Tensor:
    """[H, T] -> [H, N]"""
    return torch.nn.functional.pad(sums, (0, -sums.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK)).sum(2)


def _covering(sums: Tensor, gamma: float) -> Tensor:
    """[H]: the smallest number of tokens that hold more than gamma"""
    return (sums.sort(dim=1, descending=True).values.cumsum(1) <= gamma).sum(1) + 1


def _largest(sums: Tensor, counts: Tensor) -> Tensor:
    """[H, N] bool: the first block and those with the largest sums, counts [H] in all; of equal ones the first"""
    sums[:, 0] = torch.inf
    order = sums.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(1, order, torch.arange(sums.shape[1]) < counts[:, None])


def _distance(p: Tensor, q: Tensor) -> Tensor:
    """Square root of the Jensen-Shannon divergence of distributions [H, N], in nats: [H]"""
    mean = (p + q) / 2
    both = torch.stack((p, q))
    divergences = (torch.xlogy(both, both) - torch.xlogy(both, mean)).sum(-1)  # [2, H]
    return divergences.mean(0).clamp(min=0).sqrt()
