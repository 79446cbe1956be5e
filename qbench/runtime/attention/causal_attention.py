"""Causal attention over keys and values that are there, in torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.attention.ruled_attention import ruled_attention
from quant.models import AttentionRule


def causal_attention(q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
    """softmax(scale q k^T) v, for queries of the last T of S tokens; no query sees a later token.

    The rule may hide keys, and change the scores before the softmax.

    q        [B, H, T, D]
    k, v     [B, G, S, D] and [B, G, S, V], S >= T, H a multiple of G
    returns  [B, H, T, V]
    """
    batch, num_heads, num_queries, head_dim = q.shape
    if rule.window:  # keys before the first query's window are nobody's
        k, v = (x[:, :, -(rule.window + num_queries - 1) :] for x in (k, v))
    if not rule.is_plain:
        return ruled_attention(q, k, v, rule)
    num_kv_heads, num_keys = k.shape[1:3]
    if num_queries == 1:
        # No mask, so the query heads of one kv head are the rows of one product: keys are read once, not H / G times.
        grouped = q.reshape(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)  # [B, G, H/G, D]
        with _threads_for(k):
            out = F.scaled_dot_product_attention(grouped, k, v, scale=rule.scale)
            return out.reshape(*q.shape[:-1], v.shape[-1])
    is_causal = num_queries == num_keys and not 0 < rule.window < num_keys
    mask = None if is_causal else sees(num_queries, num_keys, rule.window, q.device)
    value_dim = v.shape[-1]
    if value_dim < head_dim:  # torch keeps a float for every pair of query and key unless v is as wide as k
        v = F.pad(v, (0, head_dim - value_dim))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=True, scale=rule.scale
    )
    return out[..., :value_dim]


# 256 keys of 8 heads of 64: about 60 us of work. torch spreads one query over all threads however short the context is,
# and where the cores are shared each of a step's layers then waits for the last of them to be scheduled.
SMALL_KEYS = 1 << 17


@contextmanager
def _threads_for(k: Tensor) -> Iterator[None]:
    """One thread of torch inside the block if the keys of a single query are few; as many as before after it."""
    before = torch.get_num_threads()
    if before == 1 or k.numel() > SMALL_KEYS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sees(num_queries: int, num_keys: int, window: int, device: torch.device) -> Tensor:
    """[T, S] bool: query t sees keys 0 .. S - T + t, and of those the last `window` alone, if it is above 0."""
    last = num_keys - num_queries  # key of query 0
    seen = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(last)
    return seen.triu(last - window + 1) if window else seen
