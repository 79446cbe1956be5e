"""XAttention: blocks by the sums of their antidiagonals."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.prefill.block_lists import BLOCK, causal_blocks
from qbench.prefill.pattern import PrefillPattern, Prompt, check_share, pattern
from quant.errors import InputError

SCOPES = ROW, LAYER = "row", "layer"
ROW_GROUPS = 128  # rows of scores at once: later keys are left out, and [H, 128, T / stride] is in memory


@pattern("xattention")
@dataclass(frozen=True)
class XAttention(PrefillPattern):
    """The smallest sets of blocks that cover `threshold` of the weights estimated by antidiagonals.

    A group is `stride` tokens. The score of two groups is the mean product along their antidiagonal, and softmax over
    the groups gives weights, which are summed per block. The first column and the diagonal are always listed.

    threshold  share of the estimated weights to cover; 1: all blocks
    stride     tokens of a group, a divisor of 128
    scope      "row": the set of each query block covers the threshold, as in the paper. "layer": the set of all heads
               and query blocks of a layer does, so that heads with wide attention may leave out more
    source     Xu et al. 2025, arXiv:2503.16428, algorithm 1; the paper also has a threshold per head, found offline
    """

    ladder = tuple(f"xattention:{share},scope=layer" for share in (0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.99))

    threshold: float = 0.9
    stride: int = 16
    scope: str = ROW

    def __post_init__(self) -> None:
        check_share("threshold", self.threshold)
        if self.stride < 1 or BLOCK % self.stride:
            raise InputError(f"stride is {self.stride}, expected a divisor of {BLOCK}")
        if self.scope not in SCOPES:
            raise InputError(f"scope is {self.scope!r}, expected {' or '.join(SCOPES)}")

    def mask(self, prompt: Prompt) -> Tensor:
        if self.threshold == 1:
            return torch.ones_like(causal_blocks(prompt.num_tokens))[None]
        weights = torch.cat(list(self._block_weights(prompt)), 1)  # [H, N, N]
        index = torch.arange(prompt.num_blocks)
        always = (index == 0) | (index[:, None] == index)
        ranked = weights.masked_fill(always, torch.inf)
        if self.scope == ROW:
            return _covering(weights, ranked, self.threshold)
        return _covering(weights.flatten(), ranked.flatten(), self.threshold).view(weights.shape)

    def _block_weights(self, prompt: Prompt) -> Iterator[Tensor]:
        """[H, n, N]: estimated weights of n query blocks after the others"""
        heads, kv_heads, per_block = len(prompt.q), len(prompt.keys), BLOCK // self.stride
        queries, keys = (_padded(x).unflatten(1, (-1, self.stride)) for x in (prompt.q, prompt.keys))  # [H, g, s, D]
        rows = queries.flip(2).flatten(2).unflatten(0, (kv_heads, -1))  # [G, H / G, g, s D]
        columns = keys.flatten(2)[:, None]  # [G, 1, g, s D]
        num_groups, real = rows.shape[2], -(-prompt.num_tokens // self.stride)
        for start in range(0, num_groups, ROW_GROUPS):
            end = min(start + ROW_GROUPS, num_groups)
            scores = (rows[:, :, start:end] @ columns[:, :, :end].mT).flatten(0, 1)  # [H, r, end]
            scores *= prompt.softmax_scale / self.stride
            later = torch.arange(end) > torch.arange(start, end)[:, None]
            weights = scores.masked_fill_(later, -torch.inf).softmax(-1)
            weights[:, max(real - start, 0) :] = 0  # groups that are padding
            blocks = weights.view(heads, -1, per_block, end // per_block, per_block).sum((2, 4))
            yield torch.nn.functional.pad(blocks, (0, prompt.num_blocks - blocks.shape[2]))


def _covering(weights: Tensor, ranked: Tensor, share: float) -> Tensor:
    """[..., n] bool: the fewest entries, in the order of `ranked`, that hold the share of the weights of a row"""
    ordered, order = ranked.sort(dim=-1, descending=True, stable=True)
    held = weights.gather(-1, order)
    before = held.cumsum(-1) - held
    is_needed = torch.isinf(ordered) | (before < share * weights.sum(-1, keepdim=True))
    return torch.zeros_like(is_needed).scatter_(-1, order, is_needed)


def _padded(x: Tensor) -> Tensor:
    """[H, T, D] with zeros up to a whole number of blocks"""
    return torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % BLOCK))
