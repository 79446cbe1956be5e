"""`plan_cache` decides once how a cache is kept, for the code that builds it, foresees its bytes or pools its pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from qbench.policies import CachePolicy
from qbench.policies.policy import Span
from qbench.run.cache_spec import NONE, PAGED
from qbench.runtime.caches.places.layered_sequence import window_rules
from qbench.runtime.caches.policy.distant_cache import CHUNK_TOKENS
from qbench.runtime.caches.policy.model_policy import policy_for, scheme_under
from qbench.runtime.caches.rules import Asked, check
from quant.kv import KVScheme
from quant.models import AttentionRule, ModelConfig

# Tokens that a window cache takes at once: enough to fill the tiles of any product many times over, and little memory
# compared with a usual window of 4096.
MAX_CHUNK_TOKENS = 256


class Kind(Enum):
    """How the layers of a cache keep keys and values.

    A layer with a state, as of linear attention, would be another kind of storage within these.
    """

    SINKS = auto()  # the first tokens and a window, at positions of the cache
    WINDOW = auto()  # pages that follow the last tokens
    CHOSEN = auto()  # all tokens in pages, of which each query chooses some
    CHOSEN_IN_TIERS = auto()  # the same, with pages in memory and on a disk
    KEPT = auto()  # slots of the tokens that a policy keeps
    TOKEN_IDS = auto()  # no keys and values: each step computes them again
    PAGES = auto()  # all tokens in pages of a pool
    TIERS = auto()  # all tokens in pages in memory and on a disk
    ALL = auto()  # all tokens in memory of each sequence


# The first row that holds decides.
KINDS: Mapping[Kind, Callable[[Asked], bool]] = {
    Kind.SINKS: lambda a: a.policy.has_sinks,
    # A format that encodes several tokens together has no pages that drop tokens one by one: a policy keeps slots.
    Kind.KEPT: lambda a: (a.policy.span is not None and a.joins_tokens) or a.evicts,
    Kind.WINDOW: lambda a: a.policy.span is not None,
    Kind.CHOSEN_IN_TIERS: lambda a: a.policy.distant is not None and a.spec.kv_ram is not None,
    Kind.CHOSEN: lambda a: a.policy.retrieval is not None,
    Kind.TOKEN_IDS: lambda a: a.spec.layout == NONE,
    Kind.PAGES: lambda a: a.spec.layout == PAGED,
    Kind.TIERS: lambda a: a.spec.kv_ram is not None,
    Kind.ALL: lambda a: True,
}


@dataclass(frozen=True, slots=True)
class CachePlan:
    """A cache that the model can have.

    kind    how its layers keep keys and values
    policy  with its budget in tokens
    rules   attention of each layer
    chunk   most tokens of a sequence per forward pass; None: any number
    """

    asked: Asked
    kind: Kind
    policy: CachePolicy
    rules: list[AttentionRule]
    chunk: int | None

    @property
    def config(self) -> ModelConfig:
        return self.asked.config

    @property
    def span(self) -> Span:
        return self.asked.span

    @property
    def scheme(self) -> KVScheme | None:
        """The KV format as the heads of the cache have it; None: float32"""
        return scheme_under(self.policy, self.asked.scheme) if self.kind is Kind.KEPT else self.asked.scheme

    @property
    def has_groups(self) -> bool:
        """Whether slots of tokens that are encoded together lose single ones"""
        return self.asked.joins_tokens and self.kind in (Kind.KEPT, Kind.SINKS)

    @property
    def longest_window(self) -> int:
        """Tokens of the window of the layer that sees most; 0: no layer has a window"""
        return max(rule.window for rule in self.rules)


def plan_cache(asked: Asked) -> CachePlan:
    """The cache that is asked for. raises InputError with every reason if the model cannot have it"""
    check(asked)
    kind = next(kind for kind, holds in KINDS.items() if holds(asked))
    policy, rules = asked.policy, asked.rules
    if kind in (Kind.KEPT, Kind.CHOSEN, Kind.CHOSEN_IN_TIERS) and not policy.needs_future:
        policy = policy_for(policy, asked.config, asked.scheme, asked.mode)
    if policy.span is not None:
        rules = window_rules(asked.config, policy.span.window)
    chunks = (_chunk(kind, asked), asked.spec.prefill_chunk)
    return CachePlan(asked, kind, policy, rules, min((chunk for chunk in chunks if chunk is not None), default=None))


def _chunk(kind: Kind, asked: Asked) -> int | None:
    """Most tokens of a sequence that this kind of cache takes at once; None: any number"""
    if kind is Kind.SINKS:
        return sinks_chunk(asked.config, asked.span)
    if kind is Kind.WINDOW:
        return MAX_CHUNK_TOKENS
    return CHUNK_TOKENS if asked.policy.distant is not None else None


def sinks_chunk(config: ModelConfig, span: Span) -> int:
    """Tokens at once of a window with sinks: no more than have positions behind those that are kept."""
    return min(MAX_CHUNK_TOKENS, config.max_positions - (span.num_tokens - 1))
