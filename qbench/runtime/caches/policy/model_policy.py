"""A policy for one model: its budget in tokens, and the KV format under it."""

from bisect import bisect_right
from dataclasses import replace
from typing import TypeVar

from qbench.policies import CachePolicy
from qbench.policies.budget import Budget, Unit
from qbench.runtime.caches.storage.kernel_storage import STORES
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.slot_side import held_bytes
from qbench.runtime.caches.storage.storages import codecs_of
from quant.kv import KVFormat, KVScheme
from quant.kv.fp8 import Fp8
from quant.models import ModelConfig
from quant.present import present

SomePolicy = TypeVar("SomePolicy", bound=CachePolicy)


def policy_for(policy: SomePolicy, config: ModelConfig, scheme: KVScheme | None, mode: str | None = None) -> SomePolicy:
    """The policy with its budget in tokens, for a model whose keys and values are kept in this format.

    mode     of latent attention
    raises   InputError for a budget that the model or the format cannot have
    """
    rows = chosen_latents(config, scheme, mode)[1]
    if rows is not None:
        return policy.for_model(config.num_layers, config.num_layers * rows.row_bytes(present(config.mla)))
    scheme = scheme_under(policy, scheme)
    codecs = codecs_of(scheme)
    widths = zip(codecs, (config.head_dim, config.value_dim), strict=True)
    token_bytes = config.num_layers * sum(codec.bytes_per_token(config.num_kv_heads, width) for codec, width in widths)
    budget = policy.most_read()
    if scheme is not None and scheme.format.token_group > 1 and budget is not None:
        token_bytes = _mean_bytes_per_token(config, scheme.format, budget, token_bytes)
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
