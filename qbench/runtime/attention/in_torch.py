"""The implementations of attention in torch, by the `impl` of a cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from qbench.run.choices import EXACT, KERNEL, SDPA, TEXTBOOK
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.textbook_attention import textbook_attention
from quant.models import AttentionRule

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
