"""Attention over a window and the first tokens of the text, which a query meets by another rotation. Plain torch."""

import torch
from torch import Tensor

from qbench.runtime.attention.ruled_attention import QUERIES
from quant.models import AttentionRule


def sink_attention(
    near: Tensor,
    far: Tensor,
    k: Tensor,
    v: Tensor,
    places: Tensor,
    num_sinks: int,
    rule: AttentionRule,
    mass: Tensor | None = None,
) -> Tensor:
    """Softmax of the rule's scores, times v; each query sees the sinks and its window.

    near, far  [B, H, T, D] float32: the queries of the last T places, rotated for the window and for the sinks
    k, v       [B, G, S, D] float32, k rotated
    places     [S] int64: number of each token in its text, ascending
    num_sinks  places below it are sinks
    mass       [B, G, S] float32: each key's weights, summed over queries and the heads of a group, are added to it
    returns    [B, H, T, D] float32
    source     Xiao et al. 2023, arXiv:2309.17453, section 3.2
    """
    num_new = near.shape[2]
    num_there = int((places < num_sinks).sum())  # these are the first
    near, far = (q.unflatten(1, (k.shape[1], -1)) for q in (near, far))  # [B, G, H / G, T, D]
    k, v = k[:, :, None], v[:, :, None]  # [B, G, 1, S, D]
    out = []
    for first in range(0, num_new, QUERIES):
        some = slice(first, first + QUERIES)
        in_window = near[..., some, :] @ k[..., num_there:, :].transpose(-1, -2)
        of_sinks = far[..., some, :] @ k[..., :num_there, :].transpose(-1, -2)
        scores = rule.scale * torch.cat((of_sinks, in_window), -1)  # [B, G, H / G, t, S]
        if rule.softcap:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        distance = places[-num_new:][some, None] - places  # [t, S]
        hidden = distance < 0
        if rule.window:
            hidden |= (distance >= rule.window) & (places >= num_sinks)
        weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
        out.append(weights @ v)
        if mass is not None:
            mass += weights.sum((2, 3))
    return torch.cat(out, 3).flatten(1, 2)
