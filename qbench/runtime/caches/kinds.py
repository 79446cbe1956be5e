"""Kinds of caches: how each keeps the tokens of its sequences, builds its memory, and predicts the bytes of it.

`plan_cache` decides once which kind a cache is of.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from qbench.policies import CachePolicy
from qbench.policies.infllm import InfLLM
from qbench.policies.policy import Span
from qbench.run.cache_spec import DENSE, NONE, PAGED, STATIC
from qbench.runtime.attention.in_torch import REFERENCE, attend_by
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kv_cache import KVCache, pooled_cache
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.places.chosen_places import ChosenSizes, chosen_places, page_size_of
from qbench.runtime.caches.places.layered_sequence import window_rules
from qbench.runtime.caches.places.owned_pages import GrowingSequence, WindowSequence, window_pages
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.places.places import OwnPages, PoolPages
from qbench.runtime.caches.places.tiered_places import DISK_BYTES, TIER_TOKENS, num_tier_pages, tiered_places
from qbench.runtime.caches.places.window_pages import WindowPages, sink_slots, window_slots
from qbench.runtime.caches.plan import CacheNeeds, CachePlan, Keeps, Kind
from qbench.runtime.caches.policy.distant_cache import CHUNK_TOKENS, DistantCache
from qbench.runtime.caches.policy.growth import policies_of_layers, sizes_after
from qbench.runtime.caches.policy.model_policy import policy_for
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.policy.retrieval_cache import RetrievalCache
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.caches.storage.head_storage import HeadStorage
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage, held_tokens
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.storage.residual_storage import residual_store_bytes
from qbench.runtime.caches.storage.slot_side import held_bytes
from qbench.runtime.caches.storage.storages import attention_by, make_memories, make_storage, of_head
from qbench.runtime.caches.view.pattern_view import PatternView
from qbench.runtime.caches.view.sink_view import SinkView, turns_with_text
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present

# Tokens that a window cache takes at once: enough to fill the tiles of any product many times over, and little memory
# compared with a usual window of 4096.
MAX_CHUNK_TOKENS = 256


class All(Kind):
    """All tokens, in memory of each sequence"""

    def holds(self, asked: Asked) -> bool:
        return True

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        asked, spec = plan.asked, plan.spec
        how = {"impl": asked.impl, "mode": asked.mode, "shared": False}
        mode, memories = make_memories(plan.config, asked.scheme, batch, capacity, **how)
        places = OwnPages(memories, plan.config.max_positions)
        if spec.prefill != DENSE:
            cache = KVCache(plan.config, places, view=PatternView(spec.make_pattern(), needs.tally))
        else:
            cache = KVCache(plan.config, places, mode=mode)
        cache.max_held = capacity if spec.layout == STATIC else None
        return cache

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        return _whole_bytes(plan, context, in_blocks=plan.in_stores)


class Pages(Kind):
    """All tokens, in pages of a pool"""

    def holds(self, asked: Asked) -> bool:
        return asked.spec.layout == PAGED

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        pool = _pool(plan, batch * _pages_of(capacity))
        return pooled_cache(pool, [GrowingSequence(pool) for _ in range(batch)])

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        return _whole_bytes(plan, context, in_blocks=True)


class Tiers(Kind):
    """All tokens of one sequence, in pages in memory and on a disk"""

    def holds(self, asked: Asked) -> bool:
        return asked.spec.kv_ram is not None

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        _check_one(batch)
        num_layers = plan.config.num_layers
        page_bytes = _one_storage(plan, 1, TIER_TOKENS).page_bytes
        limits = _limits(plan, -(-capacity // TIER_TOKENS) * page_bytes)
        storage = _one_storage(plan, num_tier_pages(page_bytes, num_layers, capacity, *limits), TIER_TOKENS)
        cache = KVCache(plan.config, tiered_places(storage, num_layers, capacity, limits[1]))
        cache.max_held = capacity
        return cache

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        return _whole_bytes(plan, context, in_blocks=plan.in_stores)


class TokenIds(Kind):
    """No keys and values: each step computes them again"""

    def holds(self, asked: Asked) -> bool:
        return asked.spec.layout == NONE

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        return self.at_once(plan, batch, None)

    def at_once(self, plan: CachePlan, batch: int, latents: Latents | None) -> Cache:
        """latents: read as their format would give them back"""
        return NoCache(plan.config, batch, plan.asked.scheme, attend_by(plan.asked.impl), latents)

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        return 0


class Chosen(Kind):
    """All tokens in pages, of which each query chooses some"""

    has_budget = True

    def holds(self, asked: Asked) -> bool:
        return asked.policy.retrieval is not None

    def chunk(self, asked: Asked) -> int | None:
        return CHUNK_TOKENS if asked.policy.distant is not None else None

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        pool = _pool(plan, batch * _pages_of(capacity))
        places = PoolPages(pool, [GrowingSequence(pool) for _ in range(batch)])
        if plan.policy.distant is not None:
            return DistantCache(plan.config, places, plan.policy.distant)
        return RetrievalCache(plan.config, places, present(plan.policy.retrieval))

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        return held_tokens(context) * plan.bytes_per_token + _index_bytes(plan, context)


class ChosenInTiers(Chosen):
    """The same of one sequence, with pages in memory and on a disk"""

    def holds(self, asked: Asked) -> bool:
        return asked.policy.distant is not None and asked.spec.kv_ram is not None

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        _check_one(batch)
        policy: InfLLM = present(plan.policy.distant)
        size, num_layers = page_size_of(policy), plan.config.num_layers
        page_bytes = _one_storage(plan, 1, size).page_bytes
        sizes = ChosenSizes(policy, num_layers, capacity, present(plan.chunk), page_bytes)
        limits = _limits(plan, -(-capacity // size) * page_bytes)
        storage = _one_storage(plan, sizes.num_pages(*limits), size)
        cache = DistantCache(plan.config, chosen_places(storage, num_layers, capacity, limits[1]), policy)
        cache.max_held = capacity
        return cache


class Kept(Kind):
    """Slots of the tokens that a policy keeps"""

    has_budget = drops_tokens = True

    def holds(self, asked: Asked) -> bool:
        # A format that encodes several tokens together has no pages that drop tokens one by one: slots do.
        return (asked.policy.span is not None and asked.joins_tokens) or asked.evicts

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        config, asked, policy = plan.config, plan.asked, plan.policy
        if Keeps.LATENTS in plan.keeps:
            how = {"impl": asked.impl, "mode": asked.mode}
            mode, storages = make_memories(config, asked.scheme, batch, BLOCK_TOKENS, **how)
        else:
            mode, storages = asked.latent_mode, [_slots(plan, layer, batch) for layer in range(config.num_layers)]
        # The model checks positions. Slots of the layer in which a window is cut may outgrow the context by some.
        cache = PolicyCache(config, OwnPages(storages, sys.maxsize, is_tight=True), policy, mode=mode)
        cache.evictor.expand = needs.expand
        if policy.reads_token_kinds:
            cache.evictor.token_kinds = needs.token_kinds()
        return cache

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        config, policies = plan.config, policies_of_layers(plan.config, plan.policy)
        if not plan.has_groups:
            slots = sizes_after(policies, context - steps, steps, config.num_kv_heads)
            return sum(slots) * plan.bytes_per_token / len(slots)
        # Slots of groups grow by single tokens.
        found = 0.0
        for layer, policy in enumerate(policies):
            num_tokens = min(context, sum(policy.slots_after(context - steps, steps, layer, len(policies))))
            found += _groups_bytes(plan, num_tokens, is_bound=policy.per_head_lengths)
        return found


class Windowed(Kind):
    """Pages that follow the last tokens"""

    def holds(self, asked: Asked) -> bool:
        return asked.policy.span is not None

    def chunk(self, asked: Asked) -> int | None:
        return MAX_CHUNK_TOKENS

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        window = plan.longest_window
        near = [layer for layer, rule in enumerate(plan.rules) if rule.window]
        far = [layer for layer, rule in enumerate(plan.rules) if not rule.window]
        most_pages = window_pages(window, MAX_CHUNK_TOKENS, BLOCK_TOKENS)
        pool = _pool(plan, batch * most_pages, near)
        # A window that the user gave is a budget. A model's own keeps room, so that generation can go back.
        held_pages = most_pages if plan.span.window is None else window_pages(window, 1, BLOCK_TOKENS)
        windows = PoolPages(pool, [WindowSequence(pool, window, held_pages) for _ in range(batch)])
        if not far:
            return KVCache(plan.config, windows, mode=pool.mode)
        whole = _pool(plan, batch * _pages_of(capacity), far)
        return KVCache(plan.config, windows, PoolPages(whole, [GrowingSequence(whole) for _ in range(batch)]))

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        near = window_pages(plan.longest_window, MAX_CHUNK_TOKENS, BLOCK_TOKENS) * BLOCK_TOKENS
        far_share = sum(not rule.window for rule in plan.rules) / len(plan.rules)
        return (near + far_share * (held_tokens(context) - near)) * plan.bytes_per_token


class Sinks(Kind):
    """The first tokens and a window, at positions of the cache"""

    drops_tokens = True

    def holds(self, asked: Asked) -> bool:
        return asked.policy.has_sinks

    def chunk(self, asked: Asked) -> int | None:
        return sinks_chunk(asked.config, asked.span)

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        storages, span = self._storages(plan, batch), plan.span
        return self._over(plan, WindowPages(storages, plan.config.num_kv_heads, present(span.window), span.sinks))

    def at_once(self, plan: CachePlan, batch: int) -> Cache:
        """A cache of a whole text, in which each query sees the same tokens"""
        return self._over(plan, OwnPages(self._storages(plan, batch), sys.maxsize))

    def _storages(self, plan: CachePlan, batch: int) -> list[KVStorage]:
        how = attention_by(REFERENCE if turns_with_text(plan.config) else plan.asked.impl)
        layers = range(plan.config.num_layers)
        sizes = (batch, BLOCK_TOKENS)
        return [make_storage(plan.config, plan.scheme, layer, *sizes, evicts=True, **how) for layer in layers]

    def _over(self, plan: CachePlan, places: OwnPages) -> Cache:
        return KVCache(plan.config, places, view=SinkView(plan.config, plan.span))

    def size_bytes(self, plan: CachePlan, context: int, steps: int) -> float:
        window, sinks = present(plan.span.window), plan.span.sinks
        if plan.has_groups:
            held = sink_slots(context - steps, steps, plan.tokens_per_forward(context, None), window, sinks)
            return plan.config.num_layers * _groups_bytes(plan, held)
        return held_tokens(min(context, window_slots(window, sinks))) * plan.bytes_per_token


SINKS, KEPT, WINDOWED, TOKEN_IDS, ALL = Sinks(), Kept(), Windowed(), TokenIds(), All()
# The first kind that holds is the cache's.
KINDS: Sequence[Kind] = (SINKS, KEPT, WINDOWED, ChosenInTiers(), Chosen(), TOKEN_IDS, Pages(), Tiers(), ALL)


def plan_cache(asked: Asked) -> CachePlan:
    """The cache that is asked for. raises InputError with every reason if the model cannot have it"""
    check(asked)
    kind = next(kind for kind in KINDS if kind.holds(asked))
    policy, rules = asked.policy, asked.rules
    if kind.has_budget and not policy.needs_future:
        policy = policy_for(policy, asked.config, asked.scheme, asked.mode)
    if policy.span is not None:
        rules = window_rules(asked.config, policy.span.window)
    chunks = [chunk for chunk in (kind.chunk(asked), asked.spec.prefill_chunk) if chunk is not None]
    return CachePlan(asked, kind, policy, rules, min(chunks, default=None))


def plan_for(asked: Asked, policy: CachePolicy) -> CachePlan:
    """A cache under a policy that no user names, as one that knows the future of a text."""
    plan = plan_cache(asked)
    chunk = asked.spec.for_quality().prefill_chunk
    return replace(plan, kind=KEPT, policy=policy_for(policy, asked.config, asked.scheme), chunk=chunk)


def sinks_chunk(config: ModelConfig, span: Span) -> int:
    """Tokens at once of a window with sinks: no more than have positions behind the kept ones."""
    return min(MAX_CHUNK_TOKENS, config.max_positions - (span.num_tokens - 1))


def _check_one(batch: int) -> None:
    """raises InputError for more sequences than --kv-ram holds"""
    if batch != 1:
        raise InputError(f"{batch} sequences, but a KV cache with --kv-ram holds one")


def _pages_of(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_TOKENS)


def _pool(plan: CachePlan, num_pages: int, layers: Sequence[int] | None = None) -> PagePool:
    asked = plan.asked
    return PagePool(asked.config, asked.scheme, num_pages, impl=asked.impl, mode=asked.mode, layers=layers)


def _one_storage(plan: CachePlan, num_pages: int, page_size: int) -> KVStorage:
    """For the pages of all layers"""
    return make_storage(plan.config, plan.asked.scheme, 0, num_pages, page_size, **attention_by(plan.asked.impl))


def _limits(plan: CachePlan, layer_bytes: int) -> tuple[int, int]:
    """Bytes of memory and of the disk; layer_bytes: of one layer of the whole sequence"""
    return plan.spec.ram_bytes(plan.config.num_layers * layer_bytes), plan.spec.kv_disk or DISK_BYTES


def _slots(plan: CachePlan, layer: int, batch: int) -> KVStorage:
    """Memory of a layer whose heads may keep different tokens"""
    config, scheme = plan.config, plan.scheme
    how = attention_by(plan.asked.impl)
    if plan.policy.per_head_lengths and not config.attention_rule(layer).window:
        heads = [of_head(config, scheme, g) for g in range(config.num_kv_heads)]
        sizes = (layer, 1, BLOCK_TOKENS)
        return HeadStorage([[make_storage(*head, *sizes, evicts=True, **how) for head in heads] for _ in range(batch)])
    return make_storage(config, scheme, layer, batch, BLOCK_TOKENS, evicts=True, **how)


def _whole_bytes(plan: CachePlan, context: int, *, in_blocks: bool) -> float:
    """Bytes of one sequence whose tokens are all held, with room for whole blocks, or only for these"""
    fmt, config = plan.residual, plan.config
    if fmt is None:
        return (held_tokens(context) if in_blocks else context) * plan.bytes_per_token
    if plan.in_stores:
        return config.num_layers * residual_store_bytes(fmt, context, config.num_kv_heads, config.head_dim)
    return plan.encoded_bytes(context)


def _index_bytes(plan: CachePlan, context: int) -> int:
    """Bytes of one sequence's summaries, by which queries choose their blocks."""
    config, policy = plan.config, present(plan.policy.retrieval)
    num_layers = sum(not rule.window for rule in plan.rules)
    return num_layers * policy.index_bytes(context, config.num_kv_heads, config.head_dim)


def _groups_bytes(plan: CachePlan, num_tokens: int, *, is_bound: bool = False) -> float:
    """Bytes of one layer that holds `num_tokens` in groups. is_bound: as for `held_bytes`"""
    config = plan.config
    widths = (config.head_dim, config.value_dim)
    return held_bytes(present(plan.format), num_tokens, config.num_kv_heads, widths, is_bound=is_bound)
