"""The requests of the next step: those that go on, start or are preempted."""

import time
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from qbench.runtime.caches.places.pages import OutOfPages
from qbench.runtime.caches.pooled_caches import PooledCaches
from qbench.runtime.engine.options import SWAP, EngineOptions
from qbench.runtime.engine.prefix_tree import Prefix, PrefixTree
from qbench.runtime.engine.state import RequestState
from qbench.runtime.engine.stored_prefixes import TOUCH_EVERY_S, StoredPrefixes
from qbench.runtime.engine.swap_space import SwapSpace
from quant.present import present

# Waiting requests whose prefix is looked up when one may start: several batches of the default size.
LOOK_AHEAD = 128


@dataclass(slots=True)
class Step:
    """decode: one token each; prefill: so many tokens each; failed: those that can never go on, and why."""

    decode: list[RequestState] = field(default_factory=list)
    prefill: list[tuple[RequestState, int]] = field(default_factory=list)
    failed: list[tuple[RequestState, str]] = field(default_factory=list)


class Scheduler:
    """Decides again at every step. It gives pages to the requests that it names before it answers.

    Every sequence past its prompt decodes in every step. If pages run out, first those that only the prefix tree
    holds are evicted, then the newest request is preempted: it gives all its pages back, and later its pages are
    computed again or copied back. So the oldest always ends.

    Two bounds hold off starvation. A request waits for at most max_overtakes later ones that are started before it,
    and in each step the oldest unfinished prompt gets at least half of the tokens: it takes at most twice the steps
    that it would take alone, while a prompt of less than the other half never waits for a longer one to end.

    caches  sequences of the pool, and how many tokens each gets at once
    tree    None: no page is shared
    stored  pages outside the pool that continue the tree's chains; None: no store
    """

    def __init__(
        self,
        caches: PooledCaches,
        options: EngineOptions,
        tree: PrefixTree | None,
        stored: StoredPrefixes | None = None,
    ) -> None:
        self.caches = caches
        pool = self.pool = caches.pool
        self.options = options
        self.tree = tree
        self.stored = stored
        is_swapping = options.preempt == SWAP
        self.swap = SwapSpace(pool, *((options.swap_bytes, options.swap_disk_bytes) if is_swapping else (0, 0)))
        self.waiting: list[RequestState] = []  # both in order of arrival
        self.running: list[RequestState] = []
        self.num_preemptions = 0
        self.num_lookup_tokens = 0
        self.num_hit_tokens = 0

    def submit(self, state: RequestState) -> None:
        insort(self.waiting, state, key=_arrival)

    def end(self, state: RequestState) -> None:
        """The request is over: its pages are free, except those that are kept for others."""
        (self.running if state.sequence is not None else self.waiting).remove(state)
        self._stop(state)
        self._drop_swapped(state)

    def keep_pages(self, state: RequestState) -> None:
        """Let others share the pages that became full."""
        num_full = state.num_computed // self.pool.page_size
        if self.tree is None or not state.keeps or num_full == state.num_shared:
            return
        tokens = state.tokens[: num_full * self.pool.page_size]
        state.since = self.tree.insert(
            tokens, state.chain, present(state.sequence).pages, state.since, state.num_shared
        )
        state.num_shared = num_full
        if self.stored is not None:
            self._store(self.tree, self.stored, state, tokens)

    def _store(self, tree: PrefixTree, stored: StoredPrefixes, state: RequestState, tokens: list[int]) -> None:
        now, pages = tree.clock(), present(state.sequence).pages
        state.num_stored = stored.keep(state.chain, tokens, pages, state.num_stored, now - state.since)
        if now - state.touched_at > TOUCH_EVERY_S:
            stored.touch(state.chain, tokens, state.num_shared)
            state.touched_at = now

    def forget(self, version: str | None) -> None:
        """Share no page of this version that was computed before now."""
        if self.tree is not None:
            self.tree.forget(version)
        if self.stored is not None:
            self.stored.forget(version)
        for state in (*self.running, *self.waiting):
            state.keeps &= state.request.version != version

    def schedule(self) -> Step:
        step = Step()
        self._take_arrived()
        for state in list(self.running):
            if (
                state.sequence is not None
                and state.loading is None
                and (state.pending == 1 or not self.caches.shares_prefixes)
            ):
                self._reserve(state, step)
        self._admit(step)
        ready = [state for state in self.running if state.loading is None]
        step.decode = [state for state in ready if self._decodes(state)]
        step.prefill = self._chunks([state for state in ready if not self._decodes(state)])
        return step

    @property
    def is_loading(self) -> bool:
        """Whether a request waits for pages of the store."""
        return any(state.loading is not None for state in self.running)

    def _take_arrived(self) -> None:
        """Requests whose pages have come from the store go on behind these pages."""
        for state in self.running:
            if state.loading is None or not state.loading.is_done:
                continue
            loading, state.loading = state.loading, None
            sequence, tree, stored = present(state.sequence), present(self.tree), present(self.stored)
            state.num_stored = loading.first + loading.num_loaded
            num_new = max(0, state.num_stored * self.pool.page_size - sequence.seq_len)
            if loading.num_loaded:
                sequence.seq_len += num_new
                state.since = min(state.since, tree.clock() - max(0.0, time.time() - loading.computed_at))
            stored.arrived(loading, num_new)
            self.num_hit_tokens += num_new
            self.keep_pages(state)

    def _decodes(self, state: RequestState) -> bool:
        """Whether it gets a single token behind its prompt, be it one that it has computed before."""
        return state.pending == 1 or (self.caches.has_fixed_chunks and state.num_computed >= len(state.request.tokens))

    def _next_tokens(self, state: RequestState) -> int:
        """Most tokens of it in a forward pass."""
        return self.caches.num_next(state.num_computed, len(state.request.tokens), len(state.tokens))

    def _reserve(self, state: RequestState, step: Step) -> None:
        """Pages for the state's next tokens, or the state is preempted itself."""
        while state.sequence is not None:
            try:
                state.sequence.reserve(self._next_tokens(state))
                return
            except OutOfPages:
                if self.tree is not None and self.tree.evict():
                    continue
            if len(self.running) == 1:
                step.failed.append((state, self._no_pages()))
                self.end(state)
            else:
                self._preempt(self.running[-1])

    def _stop(self, state: RequestState) -> None:
        """Its pages are the tree's alone from here on; the last one need not be full, as nobody goes on writing it."""
        _stop_loading(state)
        if self.tree is not None and state.keeps and state.num_computed:
            self.tree.insert(
                state.tokens[: state.num_computed], state.chain, present(state.sequence).pages, state.since
            )
            if self.stored is not None:  # pages that found no room among those that wait for the disk
                num_full = state.num_computed // self.pool.page_size
                self._store(self.tree, self.stored, state, state.tokens[: num_full * self.pool.page_size])
        state.stop()

    def _preempt(self, state: RequestState) -> None:
        self.running.remove(state)
        _stop_loading(state)
        state.swapped = self.swap.save(present(state.sequence))
        self._stop(state)
        self.submit(state)
        self.num_preemptions += 1

    def _drop_swapped(self, state: RequestState) -> None:
        if state.swapped is not None:
            self.swap.drop(state.swapped)
            state.swapped = None

    def _admit(self, step: Step) -> None:
        """Start those that wait, as far as slots and pages allow."""
        if not self.waiting or len(self.running) >= self.options.max_batch:
            return
        coming = self._coming_pages()
        while self.waiting and len(self.running) < self.options.max_batch:
            state = self._next(coming)
            if state is None:
                return
            if not self._start(state):
                if not self.running:
                    step.failed.append((state, self._no_pages()))
                    self.end(state)
                return
            for older in self.waiting[: self.waiting.index(state)]:
                older.overtaken += 1
            self.waiting.remove(state)
            insort(self.running, state, key=_arrival)
            if self.tree is not None and state.pending > 1:
                coming.update(state.chain.digests(state.tokens)[state.num_shared :])

    def _coming_pages(self) -> set[bytes]:
        """Digests of the pages that running prompts are about to compute."""
        if self.tree is None:
            return set()
        prompts = [state for state in self.running if state.pending > 1 and state.keeps]
        return {digest for state in prompts for digest in state.chain.digests(state.tokens)[state.num_shared :]}

    def _next(self, coming: set[bytes]) -> RequestState | None:
        """The request that may start and has most tokens computed already; of equals, the oldest.

        One whose next page another computes now waits for it, unless it has waited long.
        """
        candidates = self._may_start()
        if self.tree is None:
            return candidates[0]
        best, most = None, -1
        for state in candidates:
            num_matched = self.tree.num_matched(state.tokens, state.chain)
            digests = state.chain.digests(state.tokens)
            waits = num_matched < len(digests) and digests[num_matched] in coming
            if state.swapped is not None:
                num_matched, waits = max(num_matched, state.swapped.seq_len // self.pool.page_size), False
            if waits and state.overtaken < self.options.max_overtakes:
                continue
            if num_matched > most:
                best, most = state, num_matched
        return best

    def _may_start(self) -> Sequence[RequestState]:
        """The oldest, up to and with the first that may not be overtaken any more."""
        for index, state in enumerate(self.waiting[:LOOK_AHEAD]):
            if state.overtaken >= self.options.max_overtakes:
                return self.waiting[: index + 1]
        return self.waiting[:LOOK_AHEAD]

    def _start(self, state: RequestState) -> bool:
        """Pages for all tokens of the state, those that are computed already among them; False if there are too few."""
        # While a page is copied both are held, which may be one more than there are.
        return self._start_after(state, self._matched(state)) or self._start_after(state, self._matched(state, False))

    def _matched(self, state: RequestState, partial: bool = True) -> Prefix:
        """The held prefix of its tokens, with a reference to each page"""
        if self.tree is None or state.is_scoring:
            return Prefix([], 0, 0.0)
        return self.tree.match(state.tokens, state.chain, partial)

    def _start_after(self, state: RequestState, prefix: Prefix) -> bool:
        sequence = self.caches.new_sequence()
        state.start(sequence, prefix)
        # Reserve room to grow per running request; otherwise the next step would preempt the newest one.
        num_prompt = len(state.request.tokens)
        most = self.caches.most_pages(num_prompt, len(state.tokens) - num_prompt)
        needed = most - state.num_shared + len(self.running) * self.caches.pages_per_row
        swapped = state.swapped if state.swapped is not None and state.swapped.seq_len > prefix.num_tokens else None
        try:
            if not self._make_room(needed):
                raise OutOfPages
            if swapped is not None and swapped.table is not None:
                sequence.table, sequence.seq_len = swapped.table.copy(), swapped.seq_len
            count = state.pending if self.caches.shares_prefixes else self._next_tokens(state)
            if swapped is not None and swapped.table is None:
                count = max(count, swapped.seq_len - sequence.seq_len)
            sequence.reserve(count)
        except OutOfPages:
            state.stop()
            return False
        if swapped is not None:
            self.swap.restore(sequence, swapped)
        elif self.stored is not None and not state.is_scoring:
            first = sequence.seq_len // self.pool.page_size
            state.loading = self.stored.load(state.chain, state.tokens, first, sequence.pages)
        self._drop_swapped(state)
        self.num_lookup_tokens += len(state.tokens)
        self.num_hit_tokens += prefix.num_tokens
        return True

    def _make_room(self, num_pages: int) -> bool:
        """Evict until so many pages are free; evict nothing if that is impossible."""
        missing = num_pages - self.pool.num_free
        if missing <= 0:
            return True
        if self.tree is None or missing > self.tree.num_evictable():
            return False
        return all(self.tree.evict() for _ in range(missing))

    def _chunks(self, prompts: list[RequestState]) -> list[tuple[RequestState, int]]:
        """How many tokens of each prompt: the oldest gets half of all or more, of the rest the shortest come first.

        If the chunks of each prompt are fixed, the oldest gets its next one, others as long as there is room.
        """
        if not prompts:
            return []
        if self.caches.has_fixed_chunks:
            return self._whole_chunks(prompts)
        left = self.options.prefill_chunk
        oldest = prompts[0]
        half = min(self._next_tokens(oldest), -(-left // 2))
        left -= half
        chunks = []
        for state in sorted(prompts[1:], key=lambda state: (state.pending, state.id)):
            if left:
                chunks.append((state, min(self._next_tokens(state), left)))
                left -= chunks[-1][1]
        return [(oldest, min(self._next_tokens(oldest), half + left)), *chunks]

    def _whole_chunks(self, prompts: list[RequestState]) -> list[tuple[RequestState, int]]:
        chunks = [(prompts[0], self._next_tokens(prompts[0]))]
        left = self.options.prefill_chunk - chunks[0][1]
        for state in sorted(prompts[1:], key=lambda state: (self._next_tokens(state), state.id)):
            if self._next_tokens(state) <= left:
                chunks.append((state, self._next_tokens(state)))
                left -= chunks[-1][1]
        return chunks

    @property
    def num_available(self) -> int:
        """Pages that requests can have: free ones, and those that only the prefix tree holds."""
        return self.pool.num_free + (0 if self.tree is None else self.tree.num_evictable())

    def _no_pages(self) -> str:
        return (
            f"out of pages: {self.num_available} of {self.pool.num_pages} are free, and no other request runs that "
            "could be preempted"
        )


def _stop_loading(state: RequestState) -> None:
    """The pages that were to come are computed, if the request goes on."""
    if state.loading is not None:
        state.loading.cancel()
        state.loading = None


def _arrival(state: RequestState) -> int:
    return state.id
