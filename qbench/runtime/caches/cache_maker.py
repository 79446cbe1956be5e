"""`CacheMaker`: caches of one model, for any layout, policy and KV format."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from qbench.policies import CachePolicy, TokenKinds
from qbench.policies.oracle import Recorder
from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, STATIC, CacheSpec, check_cache
from qbench.run.choices import CPU, KERNEL
from qbench.runtime.attention.in_torch import REFERENCE, attend_by, impl_of
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kv_cache import KVCache, pooled_cache
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.places.chosen_places import ChosenSizes, chosen_places, page_size_of
from qbench.runtime.caches.places.owned_pages import GrowingSequence, WindowSequence, window_pages
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.places.places import OwnPages, PoolPages, check_sizes
from qbench.runtime.caches.places.tiered_places import DISK_BYTES, TIER_TOKENS, num_tier_pages, tiered_places
from qbench.runtime.caches.places.window_pages import WindowPages
from qbench.runtime.caches.plan import MAX_CHUNK_TOKENS, CachePlan, Kind, plan_cache
from qbench.runtime.caches.policy.distant_cache import DistantCache
from qbench.runtime.caches.policy.model_policy import (
    policy_for,
    scheme_under,
)
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.policy.retrieval_cache import RetrievalCache
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.caches.storage.head_storage import HeadStorage
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage
from qbench.runtime.caches.storage.latent_format import Latents, chosen_latents, uncached_latents
from qbench.runtime.caches.storage.storages import (
    attention_by,
    make_memories,
    make_storage,
    of_head,
)
from qbench.runtime.caches.view.pattern_view import PatternView
from qbench.runtime.caches.view.sink_view import SinkView, turns_with_text
from qbench.runtime.prefill_tally import PrefillTally
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.present import present


class CacheMaker:
    """Caches of one model.

    scheme   format of keys and values; None: float32
    impl     one of `attention.in_torch.ATTEND`: on torch; others: on the kernels if these have the format
    spec     layout and policy of caches for which no other is given
    attention  the user's choice of attention_choice.ATTENTIONS, which holds for every cache; None: as `impl` says
    token_kinds  finds special tokens and punctuation when a policy wants to know them
    raises   InputError for a policy, a pattern or an attention that the model or its KV format cannot have
    tally        counts of the prefills under a pattern, over all caches
    expand       of each layer, `LatentAttention.expanded`, set once the layers are loaded
    """

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        spec: CacheSpec = DEFAULT_CACHE,
        token_kinds: Callable[[], TokenKinds] = TokenKinds,
        attention: str | None = None,
    ) -> None:
        self.config, self.scheme, self.spec = config, scheme, spec
        self.impl, self.attention = impl, attention
        self._impl = impl_of(attention, impl)  # of the caches
        self.token_kinds = token_kinds
        self.expand: Sequence[Callable[[Tensor], tuple[Tensor, Tensor]]] = ()
        self.tally = PrefillTally()
        check(Asked(config, scheme, spec, attention))

    def attending(self, attention: str) -> "CacheMaker":
        """The same with attention by another code. raises InputError as for a new one"""
        check_cache(self.spec, CPU, attention)
        return self._like(self.scheme, self.spec, attention)

    def of_spec(self, spec: CacheSpec) -> "CacheMaker":
        """The same with another layout and policy. raises InputError as for a new one"""
        check_cache(spec, CPU, self.attention)
        return self._like(self.scheme, spec, self.attention)

    def of_scheme(self, scheme: KVScheme) -> "CacheMaker":
        """The same with keys and values in another format. raises InputError as for a new one"""
        return self._like(scheme, self.spec, self.attention)

    def _like(self, scheme: KVScheme | None, spec: CacheSpec, attention: str | None) -> "CacheMaker":
        return CacheMaker(self.config, scheme, self.impl, spec, self.token_kinds, attention)

    def new(self, spec: CacheSpec | None, batch: int, capacity: int, mode: str | None = None) -> Cache:
        """An empty cache.

        mode     of latent attention; a cache that holds tokens has modes, unless its policy is sinks
        raises   InputError for impossible sizes, and for a mode or a policy that the model or the layout cannot have
        """
        spec = self.spec if spec is None else spec
        check_cache(spec, CPU, self.attention)
        plan = plan_cache(Asked(self.config, self.scheme, spec, self.attention, mode, reads_once=True))
        check_sizes(batch, capacity)
        return self._build(plan, batch, capacity)

    def _build(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        build = {
            Kind.SINKS: self._sinks,
            Kind.KEPT: self._kept,
            Kind.WINDOW: self._window,
            Kind.CHOSEN_IN_TIERS: self._chosen_in_tiers,
            Kind.CHOSEN: self._chosen,
            Kind.TOKEN_IDS: lambda _plan, batch, _capacity: self._no_cache(batch),
            Kind.PAGES: self._pages,
            Kind.TIERS: self._tiers,
            Kind.ALL: self._all,
        }[plan.kind]
        cache = build(plan, batch, min(capacity, self.config.max_positions))
        cache.rules, cache.max_chunk_tokens = plan.rules, plan.chunk
        return cache

    def _pages(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        pool = self._pool(batch * pages_of(capacity), plan.asked.mode)
        return pooled_cache(pool, [GrowingSequence(pool) for _ in range(batch)])

    def _all(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        spec, mode = plan.asked.spec, plan.asked.mode
        sizes = (batch, capacity)
        mode, memories = make_memories(self.config, self.scheme, *sizes, impl=self._impl, mode=mode, shared=False)
        places = OwnPages(memories, self.config.max_positions)
        if spec.prefill != DENSE:
            cache = KVCache(self.config, places, view=PatternView(spec.make_pattern(), self.tally))
        else:
            cache = KVCache(self.config, places, mode=mode)
        cache.max_held = capacity if spec.layout == STATIC else None
        return cache

    def _tiers(self, plan: CachePlan, batch: int, capacity: int) -> KVCache:
        _check_one(batch)
        num_layers = self.config.num_layers
        page_bytes = self._one_storage(1, TIER_TOKENS).page_bytes
        limits = self._limits(plan.asked.spec, -(-capacity // TIER_TOKENS) * page_bytes)
        storage = self._one_storage(num_tier_pages(page_bytes, num_layers, capacity, *limits), TIER_TOKENS)
        cache = KVCache(self.config, tiered_places(storage, num_layers, capacity, limits[1]))
        cache.max_held = capacity
        return cache

    def _chosen_in_tiers(self, plan: CachePlan, batch: int, capacity: int) -> DistantCache:
        _check_one(batch)
        policy, num_layers = present(plan.policy.distant), self.config.num_layers
        size = page_size_of(policy)
        page_bytes = self._one_storage(1, size).page_bytes
        sizes = ChosenSizes(policy, num_layers, capacity, present(plan.chunk), page_bytes)
        limits = self._limits(plan.asked.spec, -(-capacity // size) * page_bytes)
        storage = self._one_storage(sizes.num_pages(*limits), size)
        cache = DistantCache(self.config, chosen_places(storage, num_layers, capacity, limits[1]), policy)
        cache.max_held = capacity
        return cache

    def _limits(self, spec: CacheSpec, layer_bytes: int) -> tuple[int, int]:
        """Bytes of memory and of the disk; layer_bytes: of one layer of the whole sequence"""
        return spec.ram_bytes(self.config.num_layers * layer_bytes), spec.kv_disk or DISK_BYTES

    def _one_storage(self, num_pages: int, page_size: int) -> KVStorage:
        """For the pages of all layers"""
        return make_storage(self.config, self.scheme, 0, num_pages, page_size, **attention_by(self._impl))

    def foreseeing(self, read: Callable[[Cache], object], batch: int) -> Cache:
        """A cache of a policy that needs the future; `read` passes the text through a cache that holds all of it."""
        recorder, policy = Recorder(), self.spec.make_policy()
        read(self._evicting(batch, recorder))
        return self._evicting(batch, policy.informed(recorder))

    def uncached(self, batch: int, num_tokens: int) -> Cache:
        """Keeps nothing; keys and values pass through the format, and a query sees the same tokens as in the cache.

        If the kernels are chosen, a cache of them keeps the tokens, because they read nothing else. A prefill pattern
        also reads them from a cache.
        """
        # A whole text passes at once, unless tokens are evicted or chosen between forward passes.
        plan = plan_cache(Asked(self.config, self.scheme, replace(self.spec, prefill_chunk=None), self.attention))
        policy = plan.asked.policy
        if plan.kind is Kind.SINKS:
            cache = self._sinks(plan, batch, num_tokens, uncached=True)
        elif policy.retrieval is not None:
            return self.new(self.spec.for_quality(), batch, num_tokens)
        elif not policy.position_only:
            return self._evicting(batch, policy)
        elif self.attention == KERNEL or self.spec.prefill != DENSE:
            return self._build(plan, batch, num_tokens)
        else:
            cache = self._no_cache(batch, uncached_latents(self.config, self.scheme))
        cache.rules = plan.rules
        return cache

    def _no_cache(self, batch: int, latents: Latents | None = None) -> NoCache:
        return NoCache(self.config, batch, self.scheme, attend_by(self._impl), latents)

    def _evicting(self, batch: int, policy: CachePolicy) -> PolicyCache:
        """Evicts between forward passes, so that the text takes several."""
        cache = self._keeping(batch, policy_for(policy, self.config, self.scheme), None)
        cache.max_chunk_tokens = self.spec.for_quality().prefill_chunk
        return cache

    def _pool(
        self, num_pages: int, mode: str | None, impl: str | None = None, layers: Sequence[int] | None = None
    ) -> PagePool:
        return PagePool(self.config, self.scheme, num_pages, impl=impl or self._impl, mode=mode, layers=layers)

    def _kept(self, plan: CachePlan, batch: int, capacity: int) -> PolicyCache:
        return self._keeping(batch, plan.policy, plan.asked.mode)

    def _keeping(self, batch: int, policy: CachePolicy, mode: str | None) -> PolicyCache:
        """policy: with its budget in tokens"""
        config, scheme = self.config, self.scheme
        mode, rows = chosen_latents(config, scheme, mode, impl=self._impl)
        if rows is None:
            storages = [self._storage(layer, batch, policy) for layer in range(config.num_layers)]
        else:
            _, storages = make_memories(config, scheme, batch, BLOCK_TOKENS, impl=self._impl, mode=mode)
        # The model checks positions. Slots of the layer in which a window is cut may outgrow the context by some.
        cache = PolicyCache(config, OwnPages(storages, sys.maxsize, is_tight=True), policy, mode=mode)
        cache.evictor.expand = self.expand
        if policy.reads_token_kinds:
            cache.evictor.token_kinds = self.token_kinds()
        return cache

    def _storage(self, layer: int, batch: int, policy: CachePolicy) -> KVStorage:
        config, scheme = self.config, scheme_under(policy, self.scheme)
        how = attention_by(self._impl)
        if policy.per_head_lengths and not config.attention_rule(layer).window:
            heads = [of_head(config, scheme, g) for g in range(config.num_kv_heads)]
            sizes = (layer, 1, BLOCK_TOKENS)
            return HeadStorage(
                [[make_storage(*head, *sizes, evicts=True, **how) for head in heads] for _ in range(batch)]
            )
        return make_storage(config, scheme, layer, batch, BLOCK_TOKENS, evicts=True, **how)

    def _window(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        window = plan.longest_window
        near = [layer for layer, rule in enumerate(plan.rules) if rule.window]
        far = [layer for layer, rule in enumerate(plan.rules) if not rule.window]
        most_pages = window_pages(window, MAX_CHUNK_TOKENS, BLOCK_TOKENS)
        pool = self._pool(batch * most_pages, plan.asked.mode, layers=near)
        # A window that the user gave is a budget. A model's own keeps room, so that generation can go back.
        held_pages = most_pages if plan.span.window is None else window_pages(window, 1, BLOCK_TOKENS)
        windows = PoolPages(pool, [WindowSequence(pool, window, held_pages) for _ in range(batch)])
        if not far:
            return KVCache(self.config, windows, mode=pool.mode)
        whole = self._pool(batch * pages_of(capacity), plan.asked.mode, layers=far)
        return KVCache(self.config, windows, PoolPages(whole, [GrowingSequence(whole) for _ in range(batch)]))

    def _chosen(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        pool = self._pool(batch * pages_of(capacity), None)
        places = PoolPages(pool, [GrowingSequence(pool) for _ in range(batch)])
        if plan.policy.distant is not None:
            return DistantCache(self.config, places, plan.policy.distant)
        return RetrievalCache(self.config, places, present(plan.policy.retrieval))

    def _sinks(self, plan: CachePlan, batch: int, capacity: int, *, uncached: bool = False) -> Cache:
        """uncached: of a whole text at once"""
        config, span = self.config, plan.span
        how = attention_by(REFERENCE if turns_with_text(config) else self._impl)
        sizes = (batch, BLOCK_TOKENS)
        storages = [
            make_storage(config, self.scheme, layer, *sizes, evicts=True, **how) for layer in range(config.num_layers)
        ]
        if uncached:
            places = OwnPages(storages, sys.maxsize)
        else:
            places = WindowPages(storages, config.num_kv_heads, present(span.window), span.sinks)
        return KVCache(config, places, view=SinkView(config, span))


def _check_one(batch: int) -> None:
    """raises InputError for more sequences than --kv-ram holds"""
    if batch != 1:
        raise InputError(f"{batch} sequences, but a KV cache with --kv-ram holds one")


def pages_of(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_TOKENS)
