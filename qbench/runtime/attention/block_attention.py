"""Attention over listed blocks of the keys, in torch, and the merge of results over parts of the keys."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.prefill import BlockLists, Summaries


@dataclass(frozen=True, slots=True)
class PartialAttention:
    """Attention over some of the keys.

    out  [H, T, D]: 0 if a query sees no such key
    lse  [H, T]: log of the sum of exp(scores) over these keys; minus infinity if a query sees no such key
    """

    out: Tensor
    lse: Tensor


def block_attention(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, lists: BlockLists) -> PartialAttention:
    """Attention of a prompt's queries over the key blocks of their lists.

    q     [H, T, D] float
    k, v  [G, T, D] float; head h reads kv head h // (H / G)
    """
    blocks = lists.blocks()
    masks = (lists.seen(blocks, number) for number in range(blocks.shape[1]))
    return _masked_attention(q, k, v, softmax_scale, masks)


def summary_attention(q: Tensor, summaries: Summaries, softmax_scale: float) -> PartialAttention:
    """Attention of queries q [H, T, D] over summaries; each weighs as much as the tokens that it replaces."""
    out, lse = torch.zeros_like(q), q.new_full(q.shape[:2], -torch.inf)
    groups = len(q) // len(summaries.keys)
    keys, values = (x.repeat_interleave(groups, 0) for x in (summaries.keys, summaries.values))  # [H, M, D]
    for start in range(summaries.segment, q.shape[1], summaries.segment):
        queries, seen = slice(start, start + summaries.segment), start // summaries.tokens
        scores = softmax_scale * q[:, queries] @ keys[:, :seen].mT  # [H, t, seen]
        own = scores.logsumexp(-1, keepdim=True)
        out[:, queries] = scores.sub_(own).exp_() @ values[:, :seen]
        lse[:, queries] = own[..., 0] + math.log(summaries.tokens)
    return PartialAttention(out, lse)


def concat(parts: Sequence[PartialAttention], dim: int) -> PartialAttention:
    """Results of different queries or sequences, one after another; dim: of both tensors"""
    return PartialAttention(torch.cat([part.out for part in parts], dim), torch.cat([part.lse for part in parts], dim))


def merge(*parts: PartialAttention) -> PartialAttention:
    """Attention over the keys of all parts. No key is in two of them."""
    lse = torch.stack([part.lse for part in parts]).logsumexp(0)
    out = torch.zeros_like(parts[0].out)
    for part in parts:
        out += torch.exp(part.lse - lse).nan_to_num(0.0)[..., None] * part.out
    return PartialAttention(out, lse)


def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, masks: Iterable[Tensor]
) -> PartialAttention:
    """masks  [1 or H, t, S] bool for t queries after the others: whether a query sees a key"""
    k, v = (x.repeat_interleave(len(q) // len(k), 0) for x in (k, v))  # [H, S, D]
    outs, lses, start = [], [], 0
    for mask in masks:
        end = start + mask.shape[1]
        scores = (softmax_scale * q[:, start:end] @ k.mT).masked_fill_(~mask, -torch.inf)  # [H, t, S]
        lses.append(scores.logsumexp(-1))
        outs.append(scores.softmax(-1).nan_to_num_(0.0) @ v)
        start = end
    return PartialAttention(torch.cat(outs, 1), torch.cat(lses, 1))
