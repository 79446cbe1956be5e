"""Policies that a model can have: checked before any weight is read."""

from bisect import bisect_right
from dataclasses import replace
from typing import TypeVar

from qbench.cache_spec import FULL, CacheSpec
from qbench.policies import CachePolicy
from qbench.policies.budget import Budget, Unit
from qbench.policies.budgeted import BudgetedPolicy
from qbench.policies.infllm import InfLLM
from qbench.policies.positions import Sinks, Window
from qbench.policies.retrieval import RetrievalPolicy
from qbench.runtime.attention.mla_modes import get_mode
from qbench.runtime.caches.places.layered_sequence import window_rules
from qbench.runtime.caches.policy.evictor import check_policy_suits
from qbench.runtime.caches.storage.kernel_storage import STORES
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.slot_side import held_bytes
from qbench.runtime.caches.storage.storages import codecs_of
from qbench.runtime.caches.view.sink_view import check_sinks, turns_with_text
from quant.errors import InputError
from quant.kv import KVFormat, KVScheme
from quant.kv.fp8 import Fp8
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.models.online import KEYS
from quant.present import present
from quant.source import Source

SomePolicy = TypeVar("SomePolicy", bound=CachePolicy)


def check_policy(config: ModelConfig, scheme: KVScheme | None, policy: CachePolicy) -> None:
    """raises InputError if the model, with this KV format, cannot have the policy in any cache"""
    if KEYS in config.online and (isinstance(policy, Sinks) or policy.reads_queries):
        raise InputError(
            f"keys of this model are rotated online, after their positions, which policy {policy.name} does not know; "
            "choose another policy"
        )
    if isinstance(policy, Sinks):
        check_sinks(config, policy)
    elif isinstance(policy, Window):
        window_rules(config, policy.tokens)
    elif not policy.position_only and not isinstance(policy, RetrievalPolicy):  # see retrieval_suits
        check_policy_suits(config)
        if not policy.needs_future:
            policy_for(policy, config, scheme)


def check_engine_policy(config: ModelConfig, scheme: KVScheme | None, policy: CachePolicy) -> None:
    """raises InputError if the engine cannot run the policy"""
    check_policy(config, scheme, policy)
    if policy.needs_future:
        policy_for(policy, config, scheme)
    if isinstance(policy, RetrievalPolicy):
        raise InputError(
            f"policy {policy.name} lets each query choose what it reads, which the engine does not do; "
            "use policy full, or run generate, eval, bench or sweep"
        )
    if isinstance(policy, Sinks) and turns_with_text(config):
        raise InputError("this model's rotations change with the length of the text, which sinks cannot follow")


def policy_for(policy: SomePolicy, config: ModelConfig, scheme: KVScheme | None, mode: str | None = None) -> SomePolicy:
    """The policy for a model whose keys and values are kept in this format.

    mode     of latent attention
    raises   InputError for options that the model, the mode or the format cannot have, and for a policy that needs the
             future
    """
    if policy.needs_future:
        raise InputError(
            f"policy {policy.name} reads a text twice, so the text must be known; it is for `qbench eval` on a text"
        )
    mode, rows = chosen_latents(config, scheme, mode)
    if config.mla is not None and policy.per_head_lengths:
        raise InputError(
            f"policy {policy.name} keeps other tokens in each head, but all heads of {config.architecture.name} share "
            "the latent of a token; choose another policy"
        )
    if rows is not None:
        if policy.reads_queries and mode is not None and get_mode(mode).materialises:
            raise InputError(f"policy {policy.name} reads queries, which mode {mode!r} does not form; choose another")
        return policy.for_model(config.num_layers, config.num_layers * rows.row_bytes(present(config.mla)))
    scheme = scheme_under(policy, scheme)
    codecs = codecs_of(scheme)
    widths = zip(codecs, (config.head_dim, config.value_dim), strict=True)
    token_bytes = config.num_layers * sum(codec.bytes_per_token(config.num_kv_heads, width) for codec, width in widths)
    if scheme is not None and scheme.format.token_group > 1 and isinstance(policy, BudgetedPolicy):
        token_bytes = _mean_bytes_per_token(config, scheme.format, policy.budget, token_bytes)
    return policy.for_model(config.num_layers, token_bytes)


def scheme_under(policy: CachePolicy, scheme: KVScheme | None) -> KVScheme | None:
    """The KV format as heads that may keep different tokens have it: each stores the scale that all share.

    If heads have lengths of their own, a head finds its scale alone, as under kv-fp8.
    """
    same_in_heads = policy.position_only or not policy.per_head
    if scheme is None or same_in_heads or STORES.get(scheme.format.name, ("", ""))[1] != "per_tensor":
        return scheme
    keys, values = (replace(codec, spread=True) for codec in codecs_of(scheme) if isinstance(codec, Fp8))
    return replace(
        scheme, format=replace(scheme.format, name=f"{scheme.format.name} per head", keys=keys, values=values)
    )


def _mean_bytes_per_token(config: ModelConfig, fmt: KVFormat, budget: Budget, encoded: float) -> float:
    """Bytes per token of as many tokens as the budget has room for, if some of them are floats.

    encoded  bytes of a token that is encoded
    """
    if budget.unit is not Unit.BYTES:
        return encoded
    widths = (config.head_dim, config.value_dim)

    def all_layers(num_tokens: int) -> float:
        return config.num_layers * held_bytes(fmt, num_tokens, config.num_kv_heads, widths)

    num_tokens = bisect_right(range(int(budget.amount // encoded) + 1), budget.amount, key=all_layers) - 1
    return budget.amount / num_tokens if num_tokens else all_layers(1)


def check_retrieval_suits(config: ModelConfig, scheme: KVScheme | None, spec: CacheSpec) -> None:
    """raises InputError for a model or a KV format that the policy cannot read in part"""
    policy = None if spec.policy == FULL else spec.make_policy()
    if not isinstance(policy, RetrievalPolicy):
        return
    who = config.architecture.name
    if config.mla is not None:
        raise InputError(f"policy {policy.name} reads keys of each head, but {who} keeps latents; use policy full")
    if any(config.attention_rule(layer).has_alibi for layer in range(config.num_layers)):
        raise InputError(f"{who} has ALiBi, which policy {policy.name} changes; use policy full")
    if scheme is not None and any(codec.token_group > 1 for codec in codecs_of(scheme)):
        raise InputError(
            f"{scheme.format.name} encodes several tokens together, of which policy {policy.name} reads only some; "
            "choose a format that encodes each token by itself, as kv-f16 or kv-int8"
        )
    if isinstance(policy, InfLLM):
        _check_rotates(config)


def _check_rotates(config: ModelConfig) -> None:
    """raises InputError if queries cannot meet distant keys by another rotation"""
    who = config.architecture.name
    if KEYS in config.online:
        raise InputError("keys are rotated online here, so policy infllm cannot turn them back; use policy quest")
    if not config.has_rope:
        raise InputError(f"{who} has no rotary positions, which policy infllm changes; use policy quest")
    if turns_with_text(config):
        raise InputError(
            f"rotations of {who} change in a long text, so policy infllm cannot turn keys back; use policy quest"
        )


def check_source_suits_retrieval(source: Source, spec: CacheSpec) -> None:
    """`check_retrieval_suits` of a source before it is read. raises InputError for an encoder-decoder, too"""
    if spec.policy == FULL or not isinstance(spec.make_policy(), RetrievalPolicy):
        return
    if is_encoder_decoder(source.config):
        raise InputError(f"{source.spec} is an encoder-decoder; got policy {spec.policy}, expected {FULL}")
    config = ModelConfig.of(source)
    check_retrieval_suits(config, KVScheme.of(source.config, config, source.spec), spec)
