"""The implementations of attention in torch, by the `impl` of a cache, and the textbook's."""

from collections.abc import Callable

import torch
from torch import Tensor

from qbench.run.choices import EXACT, KERNEL, SDPA, TEXTBOOK
from qbench.runtime.attention.causal_attention import causal_attention, sees
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


CausalAttention = Callable[..., Tensor]  # (q, k, v, rule) as those of `causal_attention`

REFERENCE = "reference"
ATTEND: dict[str, CausalAttention] = {
    REFERENCE: causal_attention,
    SDPA: causal_attention,  # of rules that `caches.rules` lets pass, it is one call of torch's
    TEXTBOOK: textbook_attention,
}


def is_in_torch(impl: str) -> bool:
    return impl in ATTEND


def attend_by(impl: str) -> CausalAttention:
    """The function of an `impl`; the one of REFERENCE if stores of cpu_kernels attend themselves.

    EXACT takes one token after the other: torch's sums differ in the last digits with the number of queries and of
    keys that they do not see, and a linear that rounds its input to int8 makes another code of that.
    """
    return attention_by_token if impl == EXACT else ATTEND.get(impl, causal_attention)


def attention_by_token(q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
    """`causal_attention` of each query alone, over the keys that it may see: no bit depends on the other queries."""
    num_queries, num_keys = q.shape[2], k.shape[2]
    ends = range(num_keys - num_queries + 1, num_keys + 1)
    queries = q.split(1, dim=2)
    outs = [causal_attention(one, k[:, :, :end], v[:, :, :end], rule) for one, end in zip(queries, ends, strict=True)]
    return torch.cat(outs, dim=2)


def impl_of(attention: str | None, impl: str) -> str:
    """The `impl` of a model's caches if the user chooses attention; None: the one of its linears."""
    if attention == KERNEL:
        return "auto" if is_in_torch(impl) else impl
    return attention or impl
