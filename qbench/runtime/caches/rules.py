"""Caches that a model can have: one table of rows, which are asked before any weight is read.

`check` raises with every reason at once, and with the nearest cache that the model can have.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from qbench.policies import CachePolicy
from qbench.policies.policy import Span
from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, DYNAMIC, FULL, NONE, CacheSpec
from qbench.run.choices import KERNEL, SDPA, TEXTBOOK
from qbench.runtime.attention.mla_modes import get_mode
from qbench.runtime.caches.places.layered_sequence import pages_per_row, window_rules
from qbench.runtime.caches.policy.model_policy import policy_for
from qbench.runtime.caches.storage.kernel_storage import has_store
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.storages import check_heads
from qbench.runtime.caches.view.sink_view import turns_with_text
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import AttentionRule, ModelConfig
from quant.models.online import KEYS


@dataclass(frozen=True, slots=True)
class Asked:
    """A cache that a model is asked to have.

    scheme       format of keys and values; None: float32
    spec         layout, policy, prefill pattern and tiers
    attention    the user's choice of attention_choice.ATTENTIONS; None: any
    mode         of latent attention; None: the fastest
    reads_once   whether a text passes once, as if tokens are generated
    in_engine    whether the pages of a pool serve all sequences
    impl         implementation of the cache: one of `attention.in_torch.ATTEND` is in torch, others in cpu_kernels'
                 stores if these hold the format
    """

    config: ModelConfig
    scheme: KVScheme | None = None
    spec: CacheSpec = DEFAULT_CACHE
    attention: str | None = None
    mode: str | None = None
    reads_once: bool = False
    in_engine: bool = False
    impl: str = "auto"

    @property
    def who(self) -> str:
        return self.config.architecture.name

    @property
    def policy(self) -> CachePolicy:
        return self.spec.make_policy()

    @property
    def span(self) -> Span:
        return self.policy.span or Span(None)

    @property
    def pattern(self) -> str:
        """In the words of messages"""
        return f"prefill pattern {self.spec.prefill}"

    @property
    def rules(self) -> list[AttentionRule]:
        """The attention rule of each layer"""
        return [self.config.attention_rule(layer) for layer in range(self.config.num_layers)]

    @property
    def is_latent(self) -> bool:
        return self.config.mla is not None

    @property
    def has_alibi(self) -> bool:
        return any(rule.has_alibi for rule in self.rules)

    @property
    def has_windows(self) -> bool:
        return any(rule.window for rule in self.rules)

    @property
    def is_plain(self) -> bool:
        return all(rule.is_plain for rule in self.rules)

    @property
    def unusual(self) -> str:
        """The property of attention that is not plain"""
        return "ALiBi" if self.has_alibi else "capped scores"

    @property
    def keeps_rows(self) -> bool:
        """Whether the cache keeps rows of latents"""
        return self.spec.layout != NONE and chosen_latents(self.config, self.scheme, self.mode)[1] is not None

    @property
    def latent_mode(self) -> str | None:
        return chosen_latents(self.config, self.scheme, self.mode)[0]

    @property
    def forms_queries(self) -> bool:
        """Whether attention forms queries of every head, which a policy may read"""
        mode, rows = chosen_latents(self.config, self.scheme, self.mode)
        return rows is None or mode is None or not get_mode(mode).materialises

    @property
    def joins_tokens(self) -> bool:
        """Whether the KV format encodes several tokens together"""
        return self.scheme is not None and self.scheme.format.token_group > 1

    @property
    def has_scales(self) -> bool:
        """Whether scales of the KV format come with the model, for each layer"""
        return self.scheme is not None and self.scheme.k_scale is not None

    @property
    def format(self) -> str:
        return "float32" if self.scheme is None else self.scheme.format.name

    @property
    def evicts(self) -> bool:
        return not self.policy.position_only and self.policy.retrieval is None


def has_modes(spec: CacheSpec) -> bool:
    """Whether the cache of a model with latent attention keeps latents, and attends to them by a mode."""
    return spec.layout != NONE and not spec.make_policy().has_sinks


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason against a cache.

    when   whether it holds
    why    the reason, with the next step
    """

    when: Callable[[Asked], bool]
    why: Callable[[Asked], str]


def _error(call: Callable[[Asked], object], asked: Asked) -> str:
    """The message of an InputError that the call raises; empty: it raises no error"""
    try:
        call(asked)
    except InputError as error:
        return str(error)
    return ""


def _raised(call: Callable[[Asked], object]) -> Rule:
    """A rule that another part of the project holds"""
    return Rule(lambda asked: bool(_error(call, asked)), partial(_error, call))


def _check_sizes(asked: Asked) -> None:
    """raises InputError for a budget or a window that the model, in this KV format, cannot have"""
    if asked.policy.span is not None:
        window_rules(asked.config, asked.policy.span.window)
    elif asked.evicts and not (asked.is_latent and asked.policy.per_head_lengths):
        policy_for(asked.policy, asked.config, asked.scheme, asked.mode)


def _check_heads(asked: Asked) -> None:
    """raises InputError if the KV format cannot hold the heads of the model, or the latents that its cache keeps"""
    chosen_latents(asked.config, asked.scheme, asked.mode)
    if not asked.keeps_rows:
        check_heads(asked.config, asked.scheme)


RULES: tuple[Rule, ...] = (
    # Attention
    Rule(
        lambda a: a.attention is not None and a.is_latent,
        lambda a: (
            f"{a.who} has latent attention, which attention {a.attention} is not; `qbench mla` compares its modes"
        ),
    ),
    Rule(
        lambda a: a.attention in (SDPA, KERNEL) and not a.is_latent and not a.is_plain,
        lambda a: f"{a.who} has {a.unusual}, which attention {a.attention} cannot compute; choose {TEXTBOOK}",
    ),
    Rule(
        lambda a: a.attention == KERNEL and not a.is_latent and a.is_plain and not has_store(a.config, a.scheme),
        lambda a: f"attention {KERNEL} does not read {a.format} with heads of {a.config.head_dim}; choose another one",
    ),
    Rule(
        lambda a: a.mode is not None and not has_modes(a.spec),
        lambda a: (
            f"cache {a.spec} has no modes; a mode goes with cache dynamic, static or paged, and any policy but sinks"
        ),
    ),
    # KV format
    _raised(_check_heads),
    # Prefill pattern
    Rule(
        lambda a: a.spec.prefill != DENSE and a.is_latent,
        lambda a: f"{a.who} has latent attention, for which there are no block lists; choose prefill {DENSE}",
    ),
    Rule(
        lambda a: a.spec.prefill != DENSE and not a.is_latent and not a.is_plain,
        lambda a: f"{a.who} has {a.unusual}, which {a.pattern} cannot compute; choose prefill {DENSE}",
    ),
    Rule(
        lambda a: a.spec.prefill != DENSE and a.has_windows,
        lambda a: f"{a.who} has layers with a window, which {a.pattern} would widen; choose prefill {DENSE}",
    ),
    Rule(
        lambda a: a.spec.prefill != DENSE and a.joins_tokens,
        lambda a: (
            f"KV format {a.format} encodes several tokens together, which {a.pattern} cannot read; choose a "
            "format that encodes each token by itself, as kv-f16 or kv-int8"
        ),
    ),
    # Policies that choose pages
    Rule(
        lambda a: a.policy.retrieval is not None and a.is_latent,
        lambda a: f"policy {a.policy.name} reads keys of each head, but {a.who} keeps latents; use policy full",
    ),
    Rule(
        lambda a: a.policy.retrieval is not None and a.has_alibi,
        lambda a: f"{a.who} has ALiBi, which policy {a.policy.name} changes; use policy full",
    ),
    Rule(
        lambda a: a.policy.retrieval is not None and a.joins_tokens,
        lambda a: (
            f"{a.format} encodes several tokens together, of which policy {a.policy.name} reads only some; "
            "choose a format that encodes each token by itself, as kv-f16 or kv-int8"
        ),
    ),
    Rule(
        lambda a: a.policy.distant is not None and KEYS in a.config.online,
        lambda a: "keys are rotated online here, so policy infllm cannot turn them back; use policy quest",
    ),
    Rule(
        lambda a: a.policy.distant is not None and not a.config.has_rope,
        lambda a: f"{a.who} has no rotary positions, which policy infllm changes; use policy quest",
    ),
    Rule(
        lambda a: a.policy.distant is not None and turns_with_text(a.config),
        lambda a: (
            f"rotations of {a.who} change in a long text, so policy infllm cannot turn keys back; use policy quest"
        ),
    ),
    Rule(
        lambda a: a.policy.retrieval is not None and a.in_engine,
        lambda a: (
            f"policy {a.policy.name} lets each query choose what it reads, which the engine does not do; "
            "use policy full, or run generate, eval, bench or sweep"
        ),
    ),
    # Sinks
    Rule(
        lambda a: a.policy.has_sinks and (a.is_latent or not a.config.has_rope),
        lambda a: (
            f"sinks stand at other positions as the text goes on, but {a.who} "
            + ("rotates its keys before a cache has them" if a.is_latent else "has no rotary positions")
        ),
    ),
    Rule(
        lambda a: a.policy.has_sinks and a.span.num_tokens > a.config.max_positions,
        lambda a: (
            f"a window of {a.span.window} and {a.span.sinks} sinks, but the model's context holds "
            f"{a.config.max_positions}"
        ),
    ),
    Rule(
        lambda a: a.policy.has_sinks and a.in_engine and turns_with_text(a.config),
        lambda a: "this model's rotations change with the length of the text, which sinks cannot follow",
    ),
    # Policies that evict
    Rule(
        lambda a: KEYS in a.config.online and (a.policy.has_sinks or a.policy.reads_queries),
        lambda a: (
            f"keys of this model are rotated online, after their positions, which policy {a.policy.name} does not "
            "know; choose another policy"
        ),
    ),
    Rule(
        lambda a: a.evicts and a.has_alibi,
        lambda a: f"{a.who} lowers scores by distance (ALiBi), which eviction changes; use policy full",
    ),
    Rule(
        lambda a: a.policy.needs_future and a.reads_once,
        lambda a: (
            f"policy {a.policy.name} reads a text twice, so the text must be known; it is for `qbench eval` on a text"
        ),
    ),
    Rule(
        lambda a: a.policy.per_head_lengths and a.is_latent,
        lambda a: (
            f"policy {a.policy.name} keeps other tokens in each head, but all heads of {a.who} share the latent of "
            "a token; choose another policy"
        ),
    ),
    Rule(
        lambda a: a.evicts and a.policy.reads_queries and not a.forms_queries,
        lambda a: f"policy {a.policy.name} reads queries, which mode {a.latent_mode!r} does not form; choose another",
    ),
    _raised(_check_sizes),
    # Memory and disk
    Rule(
        lambda a: a.spec.kv_ram is not None and (a.is_latent or a.has_scales),
        lambda a: "--kv-ram needs keys and values of every head, with one scale format for all layers",
    ),
    Rule(
        lambda a: a.spec.kv_ram is not None and a.policy.distant is not None and a.has_windows,
        lambda a: f"{a.who} has layers with a window, which --kv-ram does not hold yet",
    ),
    # Pages of a pool
    Rule(
        lambda a: (
            a.in_engine
            and a.has_scales
            and pages_per_row(a.policy, a.config, by_sequence=a.joins_tokens and not a.keeps_rows) > 1
        ),
        lambda a: (
            f"{a.format} has scales of its own in each layer and head, but "
            f"{'heads' if a.policy.per_head_lengths else 'layers'} share their pages under policy {a.policy.name}; "
            "choose a format with a scale per token"
        ),
    ),
)


def reasons(asked: Asked) -> list[str]:
    """All reasons against the cache; empty if the model can have it"""
    return list(dict.fromkeys(rule.why(asked) for rule in RULES if rule.when(asked)))


def check(asked: Asked) -> None:
    """raises InputError with all reasons against the cache; if there are several, with the nearest one that works"""
    found = reasons(asked)
    if not found:
        return
    works = _nearest_that_works(asked) if len(found) > 1 else None
    raise InputError("; also: ".join(found) + ("" if works is None else f"; what works: {works}"))


def _nearest_that_works(asked: Asked) -> str | None:
    """The fewest changes by which the model can have the cache."""
    changes = list(_changes(asked))
    for count in range(1, len(changes) + 1):
        for some in combinations(changes, count):
            other = _changed(asked, [change for _, change in some])
            if other is not None and not reasons(other):
                return ", ".join(name for name, _ in some)
    return None


def _changes(asked: Asked) -> Iterator[tuple[str, dict[str, object]]]:
    """Options of the cache at their simplest, and how `Asked` has them."""
    if asked.spec.policy != FULL:
        yield f"policy {FULL}", {"policy": FULL}
    if asked.spec.prefill != DENSE:
        yield f"prefill {DENSE}", {"prefill": DENSE}
    if asked.spec.kv_ram is not None:
        yield "no --kv-ram", {"kv_ram": None, "kv_disk": None}
    if asked.spec.layout != DYNAMIC:
        yield f"cache {DYNAMIC}", {"layout": DYNAMIC}
    if asked.attention is not None:
        yield "no choice of attention", {"attention": None}
    if asked.mode is not None:
        yield "no mode", {"mode": None}
    if asked.scheme is not None:
        yield "KV format float32", {"scheme": None}


def _changed(asked: Asked, changes: Sequence[dict[str, object]]) -> Asked | None:
    """None if the names of the cache do not go together then"""
    given = {name: value for change in changes for name, value in change.items()}
    own = {name: given.pop(name) for name in ("attention", "mode", "scheme") if name in given}
    try:
        return replace(asked, spec=replace(asked.spec, **given), **own)
    except InputError:
        return None
