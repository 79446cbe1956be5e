"""`PooledCaches`: sequences in the pages of a pool and caches over them, by the policy of a model."""

from collections.abc import Sequence

from qbench.run.cache_spec import DENSE
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kinds import KEPT, SINKS, sinks_chunk
from qbench.runtime.caches.kv_cache import KVCache, pooled_cache
from qbench.runtime.caches.places.head_pages import HeadPages, HeadSequence
from qbench.runtime.caches.places.layered_sequence import LayeredSequence, layer_groups, pages_per_row
from qbench.runtime.caches.places.owned_pages import WindowSequence, window_pages
from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.places.places import PoolPages
from qbench.runtime.caches.places.window_pages import SinkPages, SinkSequence, window_slots
from qbench.runtime.caches.policy.evictor import slot_table
from qbench.runtime.caches.policy.growth import policies_of_layers
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.view.pattern_view import PatternView
from qbench.runtime.caches.view.sink_view import SinkView
from qbench.runtime.caches.view.view import ALL_TOKENS
from quant.present import present


class PooledCaches:
    """Properties of the model's policy that an engine asks for.

    A page has all layers, unless a window holds in some of them only, or heads have lengths of their own.

    shares_prefixes   whether sequences may share the pages of a common prefix. A policy that evicts cannot: one
                      sequence's queries would decide on the evictions of another one. Under a prefill pattern keys and
                      values depend on the length of the whole prompt. In a KV format that encodes tokens together, the
                      recent tokens of one sequence would already be encoded for another one
    is_scored         whether evictions depend on attention or keys
    has_fixed_chunks  whether results depend on where forward passes end, so that each prompt has chunks of its own
    max_chunk_tokens  most tokens that a sequence may get at once; None: any number
    pages_per_row     pages that hold as many tokens as one page has slots, in all layers and heads
    raises            InputError for a cache that the model cannot have in the engine
    """

    def __init__(self, maker: CacheMaker, pool: PagePool, max_chunk_tokens: int) -> None:
        self.pool, self.config = pool, maker.config
        self.plan = plan = maker.plan(maker.spec, pool.mode, reads_once=True, in_engine=True)
        self.policy, self.rules = plan.policy, plan.rules
        self.pattern = None if maker.spec.prefill == DENSE else maker.spec.make_pattern()
        self._is_full, self._needs = self.policy.is_full, maker.needs
        self.shares_prefixes = self._is_full and self.pattern is None and pool.num_sequences is None
        self.is_scored = plan.kind is KEPT
        self.has_fixed_chunks = self.is_scored or self.pattern is not None or pool.by_sequence
        self.max_chunk_tokens = maker.spec.prefill_chunk
        self.pages_per_row = pages_per_row(self.policy, self.config, by_sequence=pool.by_sequence)
        self._groups = list[list[int]]()  # layers that keep the same tokens, if a window says so
        self._token_kinds = None
        if self.is_scored and self.policy.reads_token_kinds:
            self._token_kinds = maker.needs.token_kinds()
        elif not self.is_scored and self.policy.span is not None:
            self._take_window(max_chunk_tokens)

    def _take_window(self, max_chunk_tokens: int) -> None:
        self._sinks = self.plan.span if self.plan.kind is SINKS else None
        self._window = self.plan.longest_window
        self._groups = layer_groups(self.config, self.policy)
        if self._sinks is not None:
            most = sinks_chunk(self.config, self._sinks)
            max_chunk_tokens = most if self.has_fixed_chunks else min(max_chunk_tokens, most)
        self.max_chunk_tokens = min(max_chunk_tokens, self.max_chunk_tokens or max_chunk_tokens)
        self._most_pages = window_pages(self._window, self.max_chunk_tokens, self.pool.page_size)

    def new_sequence(self) -> PagedSequence:
        if self.is_scored:
            kind = HeadSequence if self.policy.per_head_lengths else PagedSequence
            return kind(self.pool, slot_table(self.config, self.pool.memories))
        if self._is_full:
            return PagedSequence(self.pool)
        if self._sinks is not None and self.pool.by_sequence:
            return SinkSequence(self.pool, self._window, self._sinks.sinks)
        parts = [self._part(group) for group in self._groups]
        return parts[0] if len(parts) == 1 else LayeredSequence(self.pool, parts)

    def _part(self, group: Sequence[int]) -> PagedSequence:
        """The tokens of one sequence that a group of layers keeps."""
        if not self.rules[group[0]].window:
            return PagedSequence(self.pool)
        held = window_pages(self._window, 1, self.pool.page_size)
        return WindowSequence(self.pool, self._window, held, self._sinks.sinks if self._sinks else 0)

    def over(self, sequences: Sequence[PagedSequence]) -> Cache:
        """A cache for one forward pass."""
        if self.is_scored:
            places = self._places(sequences)
            tables = [present(each.table) for each in sequences]
            cache = PolicyCache(self.config, places, self.policy, tables, self.pool.mode)
            cache.seq_lens, cache.evictor.expand = places.seq_lens, self._needs.expand
            if self._token_kinds is not None:
                cache.evictor.token_kinds = self._token_kinds
            cache.rules = self.rules
            return cache
        if self.pattern is not None:
            return pooled_cache(self.pool, sequences, PatternView(self.pattern, self._needs.tally))
        if self._is_full:
            return pooled_cache(self.pool, sequences)
        cache = self._windowed(sequences)
        cache.rules = self.rules
        return cache

    def _windowed(self, sequences: Sequence[PagedSequence]) -> Cache:
        if len(self._groups) > 1:
            parts = zip(*(sequence.parts for sequence in sequences), strict=True)
            groups = [PoolPages(self.pool, its, layers) for its, layers in zip(parts, self._groups, strict=True)]
            cache = KVCache(self.config, *groups)
            cache.seq_lens = groups[0].seq_lens
            return cache
        view = ALL_TOKENS if self._sinks is None else SinkView(self.config, self._sinks)
        dropping = [sequence for sequence in sequences if isinstance(sequence, SinkSequence)]
        return pooled_cache(self.pool, sequences, view, SinkPages(self.pool, dropping) if dropping else None)

    def _places(self, sequences: Sequence[PagedSequence]) -> PoolPages:
        heads = [sequence for sequence in sequences if isinstance(sequence, HeadSequence)]
        return HeadPages(self.pool, heads) if heads else PoolPages(self.pool, sequences)

    def num_next(self, num_computed: int, num_prompt: int, num_tokens: int) -> int:
        """Tokens that a sequence gets next, at most; if chunks are fixed, exactly.

        Fixed chunks are those that a sequence has alone: its prompt in chunks or at once, then token by token.
        """
        pending = num_tokens - num_computed
        if not self.has_fixed_chunks:
            return min(pending, self.max_chunk_tokens or pending)
        if num_computed >= num_prompt:
            return 1
        return min(num_prompt - num_computed, self.max_chunk_tokens or num_prompt)

    def most_pages(self, num_prompt: int, num_new: int) -> int:
        """Pages that a sequence takes at most, with a prompt and a text behind it."""
        rows, all_rows = map(self.pool.pages_for, (self._most_slots(num_prompt, num_new), num_prompt + num_new))
        if self.policy.per_head_lengths:  # the slots are a mean over heads, each of which fills its last page in part
            rows = min(rows + 1, all_rows)
        num_far = sum(not self.rules[group[0]].window for group in self._groups)
        return num_far * all_rows + (self.pages_per_row - num_far) * rows

    def _most_slots(self, num_prompt: int, num_new: int) -> int:
        total = num_prompt + num_new
        if self.is_scored:
            held = self._most_held(num_prompt)
            at_once = min(num_prompt, held + self.max_chunk_tokens) if self.max_chunk_tokens else num_prompt
            is_bounded = self.policy.in_decode or self.policy.span is not None
            grown = min(total, self._most_held(total) + 1) if is_bounded else held + num_new
            return max(at_once, min(total, grown))
        if self._is_full:
            return total
        if self._sinks is not None and self.pool.by_sequence:
            return min(total, window_slots(self._window, self._sinks.sinks) + (self.max_chunk_tokens or 0))
        sinks = 0 if self._sinks is None else -(-self._sinks.sinks // self.pool.page_size)
        return min(total, (self._most_pages + sinks) * self.pool.page_size)

    def _most_held(self, context: int) -> int:
        """Tokens of the layer that holds most."""
        policies = policies_of_layers(self.config, self.policy)
        return max(policy.slots(context, layer, len(policies)) for layer, policy in enumerate(policies))
