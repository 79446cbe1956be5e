"""Attention of queries over keys at any positions of the text, in torch, with the lse by which results are merged."""

import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention
from qbench.runtime.attention.ruled_attention import QUERIES, alibi_slopes, seen_scores
from quant.models import AttentionRule


def attention_at(
    q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule, queries: Tensor, keys: Tensor
) -> PartialAttention:
    """No query sees a later token; the rule may hide more, and change the scores before the softmax.

    q        [B, H, T, D] float32, at positions `queries` [T]
    k, v     [B, G, S, D] and [B, G, S, V] float32, at positions `keys` [S]; head h reads kv head h // (H / G)
    returns  out [B, H, T, V], 0 if a query sees no key; lse [B, H, T], minus infinity then
    """
    num_heads = q.shape[1]
    slopes = alibi_slopes(num_heads) if rule.has_alibi else None
    k, v = (x.repeat_interleave(num_heads // k.shape[1], dim=1) for x in (k, v))  # [B, H, S, D]
    outs, lses = [], []
    for some, places in zip(q.split(QUERIES, dim=2), queries.split(QUERIES), strict=True):
        scores = seen_scores(some, k, rule, places[:, None] - keys, slopes)  # [B, H, t, S]
        lses.append(scores.logsumexp(-1))
        outs.append(scores.softmax(-1).nan_to_num_(0.0) @ v)
    return PartialAttention(torch.cat(outs, 2), torch.cat(lses, 2))
