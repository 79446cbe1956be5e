"""KV caches that a search may choose: a format and a policy, with the bytes that the cache holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from qbench.run.cache_spec import FULL, CacheSpec
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.rules import Asked
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme, get_kv_format
from quant.kv.scheme import CONFIG_KEY
from quant.kv_names import FLOAT32
from quant.models import ModelConfig
from quant.source import Source

AUTO = "auto"
# Shares, so that they mean the same for every context.
AUTO_POLICIES = (FULL, *(f"{name}:budget={share}%" for share in (50, 25) for name in ("snapkv", "h2o")))


@dataclass(frozen=True, slots=True)
class KVWanted:
    """A cache that counts in the budget.

    text      AUTO for every format that the model can take, or names with commas, as the user wrote it
    context   tokens of a sequence
    batch     sequences
    policies  to choose from, in the user's order; (AUTO,) for AUTO_POLICIES
    """

    text: str
    context: int
    batch: int = 1
    policies: tuple[str, ...] = (FULL,)


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """A KV format with the policy that says which tokens are kept."""

    format: str
    policy: str = FULL


@dataclass(frozen=True, slots=True)
class KVCost:
    """A KV format and a policy of a file. loss: predicted KLD, nats"""

    format: str
    size_bytes: int
    loss: float
    policy: str = FULL

    @property
    def document(self) -> dict[str, str]:
        """The part of a recipe document that says so; a policy is an option of the commands that run the file."""
        return {} if self.format == FLOAT32 else {"kv": self.format}


def kv_sizes(source: Source, wanted: KVWanted) -> dict[CacheChoice, int]:
    """Bytes that each cache holds after a prompt of the whole context.

    raises   InputError for a context that the model does not hold, and a named format or policy that it cannot take
    """
    config = ModelConfig.of(source)
    if wanted.context > config.max_positions:
        raise InputError(
            f"a context of {wanted.context} tokens, but {source.spec} holds {config.max_positions}; ask for fewer"
        )
    if CONFIG_KEY in source.config:
        raise InputError(f"{source.spec} names a KV format already; search from the model that it was made from")
    formats = (FLOAT32, *KV_FORMATS) if wanted.text == AUTO else tuple(wanted.text.split(","))
    policies = AUTO_POLICIES if wanted.policies == (AUTO,) else wanted.policies
    sizes = {}
    for cache in (CacheChoice(name, policy) for policy in policies for name in formats):
        try:
            asked = Asked(config, scheme_of(cache.format, config), CacheSpec(policy=cache.policy))
            plan = plan_cache(asked)
        except InputError:
            if wanted.text == AUTO and (cache.format != FLOAT32 or wanted.policies == (AUTO,)):
                continue
            raise
        sizes[cache] = plan.size_bytes(wanted.context, wanted.batch)
    return sizes


def scheme_of(name: str, config: ModelConfig) -> KVScheme | None:
    """None for float32. raises InputError for an unknown name, heads of another size, and calibrated scales"""
    if name == FLOAT32:
        return None
    fmt = get_kv_format(name, others=(AUTO, FLOAT32))
    if fmt.calibrated:
        raise InputError(f"{name} needs the ranges of keys and values, which a search does not collect; take kv-fp8")
    fmt.check(config.head_dim)
    return KVScheme(fmt)


def kv_schemes(caches: Iterable[CacheChoice], config: ModelConfig) -> dict[str, KVScheme]:
    """The formats to measure: float32 loses nothing."""
    found = {cache.format: scheme_of(cache.format, config) for cache in caches}
    return {name: scheme for name, scheme in found.items() if scheme is not None}
