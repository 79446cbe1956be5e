"""Attention weights that keys receive from the last queries, for KV-cache policies. Plain torch."""

from collections.abc import Iterator

import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.ruled_attention import QUERIES
from quant.models import AttentionRule


def observed_weights(
    q: Tensor, k: Tensor, rule: AttentionRule, observe: Observe | None
) -> Tensor | Iterator[Tensor] | None:
    """The weights of a forward pass's queries that a policy observes, by `key_mass` or `query_weights`."""
    if observe is None:
        return None
    observed = q if observe.queries is None else q[:, :, -observe.queries :]
    return (query_weights if observe.each else key_mass)(observed, k, rule)


def joint_weights(
    q: Tensor, k: Tensor, rule: AttentionRule, observe: Observe | None
) -> Tensor | Iterator[Tensor] | None:
    """`observed_weights` as if all heads were one group, though each has its own keys.

    k        [B, H, S, D] float32
    returns  [B, 1, S] float32 each, or [B, 1, t, S]
    """
    weights = observed_weights(q, k, rule, observe)
    if weights is None or isinstance(weights, Tensor):
        return None if weights is None else weights.sum(1, keepdim=True)
    return (each.mean(1, keepdim=True) for each in weights)


def key_mass(q: Tensor, k: Tensor, rule: AttentionRule) -> Tensor:
    """Weight of each key, summed over the queries and over the heads of its group.

    q        [B, H, T, D] float32, rotated: the queries of the last T of S tokens
    k        [B, G, S, D] float32, rotated
    returns  [B, G, S] float32
    """
    mass = k.new_zeros(k.shape[:3])
    for weights in _weights(q, k, rule):
        mass[..., : weights.shape[-1]] += weights.sum((2, 3))
    return mass


def query_weights(q: Tensor, k: Tensor, rule: AttentionRule) -> Iterator[Tensor]:
    """Weight of each key for each query, averaged over the heads of its group: [B, G, t, S] float32, t queries each"""
    for weights in _weights(q, k, rule):
        yield torch.nn.functional.pad(weights.mean(2), (0, k.shape[2] - weights.shape[-1]))


def _weights(q: Tensor, k: Tensor, rule: AttentionRule) -> Iterator[Tensor]:
    """[B, G, H / G, t, seen] for some queries at a time; these queries see no later key."""
    num_queries, num_keys = q.shape[2], k.shape[2]
    grouped = q.unflatten(1, (k.shape[1], -1))  # [B, G, H / G, T, D]
    for start in range(0, num_queries, QUERIES):
        end = min(start + QUERIES, num_queries)
        seen = num_keys - num_queries + end
        keys = k[:, :, None, :seen].transpose(3, 4)  # [B, G, 1, D, seen]
        scores = rule.scale * grouped[..., start:end, :] @ keys
        if rule.softcap:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        distance = torch.arange(seen - (end - start), seen)[:, None] - torch.arange(seen)  # [t, seen]
        hidden = (distance < 0) | (distance >= rule.window) if rule.window else distance < 0
        yield scores.masked_fill_(hidden, -torch.inf).softmax(-1)
