"""The oracle of every attention op: softmax as the textbook has it, in float64, one sequence at a time.

    score[h, q, t] = softmax_scale * query[q, h] . key[t, g(h)]        g(h) = h // (num_heads / num_kv_heads)
    out[q, h]      = sum_t exp(score - lse) value[t, g(h)]             over the tokens t that q may see
    lse[q, h]      = log(sum_t exp(score) + exp(sink[h]))              the sink is a logit without a value

A query that sees nothing gets zeros, and lse = -inf (or its sink).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# The oracle takes as many heads together as have so many scores, 1 GiB: a prompt of 8192 tokens has 2**26 a head.
SCORES_AT_ONCE = 2**27


@dataclass(frozen=True, slots=True)
class Attended:
    """out [Q, H, Dv], lse [Q, H] float64, and the two sizes that rounding errors scale with.

    value_size  [Q, H, Dv]  sum_t weight |value|
    score_size  [Q, H]      max_t softmax_scale * sum_k |query| |key|, or |sink| if that is larger
    """

    out: Tensor
    lse: Tensor
    value_size: Tensor
    score_size: Tensor

    def write(self, out: Tensor, lse: Tensor) -> None:
        """Into an op's results, rounded to their types."""
        out.copy_(self.out)
        lse.copy_(self.lse)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, softmax_scale: float, sinks: Tensor | None = None
) -> Attended:
    """One sequence.

    query    [Q, H, Dk] float           keys   [T, Hkv, Dk] float    values [T, Hkv, Dv] float; H % Hkv == 0
    visible  [Q, T] bool                sinks  [H] float
    """
    num_queries, num_heads, _ = query.shape
    num_tokens, num_kv_heads, _ = keys.shape
    own = torch.arange(num_heads, device=query.device) // max(num_heads // max(num_kv_heads, 1), 1)  # [H]
    sink = query.new_full((num_heads,), -torch.inf) if sinks is None else sinks
    at_once = max(1, SCORES_AT_ONCE // max(num_queries * num_tokens, 1))
    found = [
        _attend_heads(query[:, heads], keys[:, own[heads]], values[:, own[heads]], visible, softmax_scale, sink[heads])
        for heads in torch.arange(num_heads, device=query.device).split(at_once)
    ]
    return Attended(*(torch.cat([getattr(each, name) for each in found], dim=1) for name in Attended.__slots__))


def _attend_heads(
    query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, softmax_scale: float, sink: Tensor
) -> Attended:
    """Heads that each have keys and values of their own: all of [.., H, D]; sink [H], -inf where there is none."""
    query, keys, values, sink = query.double(), keys.double(), values.double(), sink.double()
    score = softmax_scale * torch.einsum("qhd,thd->hqt", query, keys)
    score = score.masked_fill(~visible, -torch.inf)  # [H, Q, T]
    size = softmax_scale * torch.einsum("qhd,thd->hqt", query.abs(), keys.abs()).masked_fill(~visible, 0.0)
    sink = sink[:, None].expand(-1, query.shape[0])  # [H, Q]
    lse = torch.cat([score, sink[..., None]], dim=-1).logsumexp(-1)  # [H, Q]
    weight = (score - lse.where(lse != -torch.inf, 0.0)[..., None]).exp()  # [H, Q, T]
    sink_size = sink.abs().where(sink.isfinite(), 0.0)[..., None]
    return Attended(
        torch.einsum("hqt,thd->qhd", weight, values),
        lse.T,
        torch.einsum("hqt,thd->qhd", weight, values.abs()),
        torch.cat([size, sink_size], dim=-1).amax(-1).T,
    )


def visible_tokens(
    num_queries: int, length: int, window: int | None = None, device: torch.device | None = None
) -> Tensor:
    """[Q, T] bool: the queries are the last of `length` tokens; each sees itself and what is before it.

    window  sees this many tokens at most, itself among them
    """
    position = torch.arange(length - num_queries, length, device=device)[:, None]  # [Q, 1]
    token = torch.arange(length, device=device)[None, :]  # [1, T]
    visible = token <= position
    return visible if window is None else visible & (token > position - window)


def gather_pages(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """The first `length` tokens of a sequence: cache [num_pages, page_size, ...], pages [P] -> [length, ...]

    Only pages that hold them are looked up: what the table says of the others may be anything.
    """
    needed = pages[: -(-length // cache.shape[1])].long()
    return cache[needed].flatten(0, 1)[:length]


def stack(rows: list[Attended]) -> Attended:
    """Sequences of the same number of queries, as one batch: out [B, Q, H, Dv] and so on."""
    return Attended(*(torch.stack([getattr(row, name) for row in rows]) for name in Attended.__slots__))


def concatenate(rows: list[Attended]) -> Attended:
    """Sequences of unlike numbers of queries, one after the other: out [sum of Q, H, Dv] and so on."""
    return Attended(*(torch.cat([getattr(row, name) for row in rows]) for name in Attended.__slots__))
