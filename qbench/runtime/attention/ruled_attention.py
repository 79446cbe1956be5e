"""Causal attention by rules that torch's own has no words for: capped scores, and scores that fall with the distance.

Also of queries over keys at any positions, with the lse by which results are merged. In float32, some queries at a
time: the scores of all queries are never in memory together.
"""

import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention
from quant.models import AttentionRule

QUERIES = 128  # scores of 32 heads over 4096 keys take 64 MB


def ruled_attention(q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
    """Softmax of the rule's scores, times v, where the queries are the last T of S tokens.

    q        [B, H, T, D] float32
    k, v     [B, G, S, D] float32, S >= T, H a multiple of G
    returns  [B, H, T, D] float32
    """
    num_heads, num_queries, num_keys = q.shape[1], q.shape[2], k.shape[2]
    slopes = alibi_slopes(num_heads) if rule.has_alibi else None
    k, v = (x.repeat_interleave(num_heads // k.shape[1], dim=1) for x in (k, v))  # [B, H, S, D]
    out = q.new_empty(*q.shape[:3], v.shape[3])
    for start in range(0, num_queries, QUERIES):
        end = min(start + QUERIES, num_queries)
        seen = num_keys - num_queries + end
        distance = torch.arange(seen - (end - start), seen)[:, None] - torch.arange(seen)  # [t, S]
        scores = seen_scores(q[:, :, start:end], k[:, :, :seen], rule, distance, slopes)
        out[:, :, start:end] = scores.softmax(-1) @ v[:, :, :seen]
    return out


def seen_scores(q: Tensor, k: Tensor, rule: AttentionRule, distance: Tensor, slopes: Tensor | None) -> Tensor:
    """The rule's scores before the softmax; minus infinity if a query does not see a key.

    q, k      [B, H, t, D] and [B, H, S, D] float32
    distance  [t, S] tokens from a key to a query; below 0 the key is later
    slopes    [H] as `alibi_slopes`, or None
    returns   [B, H, t, S] float32
    """
    scores = rule.scale * q @ k.mT
    if rule.softcap:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if slopes is not None:
        scores -= slopes[:, None, None] * distance
    hidden = (distance < 0) | (distance >= rule.window) if rule.window else distance < 0
    return scores.masked_fill_(hidden, -torch.inf)


def alibi_slopes(num_heads: int) -> Tensor:
    """Amount that each head's scores lose per token of distance: [H] float32.

    A geometric series from 2**(-8 / n) for n heads, a power of two; those beyond it take every other term of the
    series for 2 n.
    source   Press et al. 2022, arXiv:2108.12409, section 3, and the authors' code for other numbers of heads
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4 * (2 * i + 1) / power) for i in range(num_heads - power)]
    return torch.tensor(slopes)


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
