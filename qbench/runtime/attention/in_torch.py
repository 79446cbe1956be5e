"""The implementations of attention in torch, by the `impl` of a cache."""

from collections.abc import Callable

from torch import Tensor

from qbench.attention_choice import KERNEL, SDPA, TEXTBOOK
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.textbook_attention import textbook_attention
from quant.errors import InputError
from quant.models import ModelConfig
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
    """The function of an `impl`; the one of REFERENCE if stores of cpu_kernels attend themselves."""
    return ATTEND.get(impl, causal_attention)


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
