"""Attention as textbooks write it: all scores at once, in plain torch."""

import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import sees
from qbench.runtime.attention.ruled_attention import alibi_slopes
from quant.models import AttentionRule


def textbook_attention(q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
    """softmax(scale q k^T) v by the rule, where the queries are the last T of S tokens; memory grows with T S.

    q        [B, H, T, D], of any float type, which is that of every step
    k, v     [B, G, S, D] and [B, G, S, V], S >= T, H a multiple of G
    returns  [B, H, T, V]
    source   Vaswani et al. 2017, arXiv:1706.03762, eq. 1
    """
    num_heads, num_queries = q.shape[1:3]
    num_groups, num_keys = k.shape[1:3]
    rows = q.unflatten(1, (num_groups, -1)).flatten(2, 3)  # [B, G, H/G T, D]: query heads of a KV head share its keys
    scores = rule.scale * (rows @ k.transpose(2, 3)).unflatten(2, (-1, num_queries))  # [B, G, H/G, T, S]
    if rule.softcap:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if rule.has_alibi:
        slopes = alibi_slopes(num_heads).to(q).view(num_groups, -1, 1, 1)
        place = torch.arange(num_keys, device=q.device)
        scores = scores - slopes * (place[num_keys - num_queries :, None] - place)
    hidden = ~sees(num_queries, num_keys, rule.window, q.device)  # [T, S]
    weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
    return (weights.flatten(2, 3) @ v).unflatten(2, (-1, num_queries)).flatten(1, 2)
