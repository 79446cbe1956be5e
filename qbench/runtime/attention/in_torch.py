"""The implementations of attention in torch, by the `impl` of a cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from qbench.attention_choice import KERNEL, SDPA, TEXTBOOK
from qbench.compute import EXACT
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.textbook_attention import textbook_attention
from quant.errors import InputError
from quant.models import AttentionRule, ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source

CausalAttention = Callable[..., Tensor]  # (q, k, v, rule) as those of `causal_attention`

REFERENCE = "reference"
ATTEND: dict[str, CausalAttention] = {
    REFERENCE: causal_attention,
    SDPA: causal_attention,  # of rules that `check_attention_suits` lets pass, it is one call of torch's
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


def check_source_suits(source: Source, name: str | None) -> None:
    """raises InputError as `check_attention_suits`, and for an encoder-decoder"""
    if name is not None and is_encoder_decoder(source.config):
        raise InputError(f"{source.spec} is an encoder-decoder, which has one attention alone; got attention {name}")
    if name is not None:
        check_attention_suits(ModelConfig.of(source), name)


def check_attention_suits(config: ModelConfig, name: str | None) -> None:
    """raises InputError for a choice that cannot compute the rules of the architecture; None: any"""
    if name is None:
        return
    who = config.architecture.name
    if config.mla is not None:
        raise InputError(f"{who} has latent attention, which attention {name} is not; `qbench mla` compares its modes")
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    if name in (SDPA, KERNEL) and not all(rule.is_plain for rule in rules):
        why = "ALiBi" if rules[0].has_alibi else "capped scores"
        raise InputError(f"{who} has {why}, which attention {name} cannot compute; choose {TEXTBOOK}")
