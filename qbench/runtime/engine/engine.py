"""Engine: many requests through one model, a step at a time."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.pooled_caches import PooledCaches
from qbench.runtime.engine.options import EngineOptions
from qbench.runtime.engine.prefix_tree import PrefixTree
from qbench.runtime.engine.request import Event, NeverFits, QueueFull, Request
from qbench.runtime.engine.scheduler import Scheduler
from qbench.runtime.engine.state import RequestState
from qbench.runtime.engine.stored_prefixes import StoredPrefixes, StoreStats
from qbench.runtime.model import Model
from qbench.runtime.text.sampling import log_probabilities
from qbench.runtime.text.stop_strings import StoppingStream
from qbench.runtime.text.tokenizer import Tokenizer
from qbench.runtime.tiers.block_store import BlockStore
from quant.errors import InputError
from quant.present import present


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Requests and pages now; the rest since the engine was made.

    num_pages        that all layers share; if KV heads have lengths of their own, a page is one head's in one layer; if
                     only some layers have a window, a page is one of several layers that keep the same tokens
    free_pages       that a request can have at once: those that are only kept for prefixes to come are among them
    computed_tokens  that went through the model
    swap_pages       that are out of the pool now; swapped_out, swapped_in: that were copied there and back
    evicted_slots    of held pages: a policy has evicted their tokens in some layer, but another layer holds the page
    held_slots       of held pages in all layers, if a policy evicts by attention or keys; else 0
    swap_disk_pages  of swap_pages: on the disk
    store            of the block store; None: the engine has no store
    """

    queued: int
    running: int
    free_pages: int
    num_pages: int
    prefix_pages: int
    prefix_hit_tokens: int
    prefix_lookup_tokens: int
    preemptions: int
    steps: int
    computed_tokens: int
    generated_tokens: int
    swap_pages: int
    swapped_out: int
    swapped_in: int
    evicted_slots: int = 0
    held_slots: int = 0
    swap_disk_pages: int = 0
    store: StoreStats | None = None


class Engine:
    """Continuous batching: every step chooses the running requests again, and each advances by a token or a chunk.

    With weights that are multiplied as stored (`compute="exact"`) the text of a greedy request is the same whatever
    else runs, has run, or is aborted. One thread calls all methods.

    tokenizer   for the texts of events and for stop strings; None: token ids only
    open_store  makes the block store in which prefixes outlive the engine; None: they do not
    make_caches  as of `Model.pooled_caches`
    """

    def __init__(
        self,
        model: Model,
        options: EngineOptions,
        tokenizer: Tokenizer | None = None,
        open_store: Callable[[PagePool], BlockStore] | None = None,
        make_caches: Callable[..., PooledCaches] = PooledCaches,
    ) -> None:
        self.model = model
        self.options = options
        self.tokenizer = tokenizer
        self.pool = model.page_pool(pages_of_pool(model, options), options.page_size, options.max_batch)
        self.caches = model.pooled_caches(self.pool, options.prefill_chunk, make_caches)
        tree = None
        if options.prefix_caching and self.caches.shares_prefixes:
            tree = PrefixTree(self.pool, max_age_s=options.prefix_max_age_s)
        self.stored = None
        if tree is not None and open_store is not None:
            self.stored = StoredPrefixes(open_store(self.pool), self.pool, max_age_s=options.prefix_max_age_s)
        self.scheduler = Scheduler(self.caches, options, tree, self.stored)
        self._states: dict[int, RequestState] = {}
        self._news: list[Event] = []  # returned by the next step
        self._num_submitted = self._num_steps = self._num_computed = self._num_generated = 0

    def submit(self, request: Request) -> int:
        """The id of the request, which waits for its turn.

        raises   InputError for one that the model cannot be asked, NeverFits, QueueFull
        """
        request.check(self.model.config)
        if request.stop_strings and self.tokenizer is None:
            raise InputError("stop strings need an engine with a tokenizer")
        needed = self.caches.most_pages(len(request.tokens), request.max_new_tokens)
        if needed > self.pool.num_pages:
            raise NeverFits(
                f"a prompt of {len(request.tokens)} tokens and {request.max_new_tokens} new ones take {needed} pages "
                f"of {self.pool.page_size}, but there are {self.pool.num_pages}; ask for less"
            )
        if len(self.scheduler.waiting) >= self.options.max_queue:
            raise QueueFull(f"{len(self.scheduler.waiting)} requests wait already; try again later")
        stream = None
        if self.tokenizer is not None:
            stream = StoppingStream(self.tokenizer.stream(request.tokens), request.stop_strings)
        state = RequestState(self._num_submitted, request, self.options.page_size, stream)
        self._num_submitted += 1
        self._states[state.id] = state
        self.scheduler.submit(state)
        return state.id

    def abort(self, request_id: int) -> None:
        """End a request; its pages are free when this returns. One that is over already stays as it is."""
        if (state := self._states.get(request_id)) is not None:
            self._news.append(self._ended(state, "abort"))

    def forget(self, version: str | None) -> None:
        """Share no page of this version that was computed before now: its source has changed."""
        self.scheduler.forget(version)

    def close(self) -> None:
        """Returns when the block store has all pages that wait for it; the engine is not used afterwards."""
        if self.stored is not None:
            self.stored.close()

    @property
    def has_work(self) -> bool:
        return bool(self._states or self._news)

    def stats(self) -> EngineStats:
        scheduler = self.scheduler
        sequences = [present(state.sequence) for state in scheduler.running]
        return EngineStats(
            queued=len(scheduler.waiting),
            running=len(scheduler.running),
            free_pages=scheduler.num_available,
            num_pages=self.pool.num_pages,
            prefix_pages=0 if scheduler.tree is None else len(scheduler.tree),
            prefix_hit_tokens=scheduler.num_hit_tokens,
            prefix_lookup_tokens=scheduler.num_lookup_tokens,
            preemptions=scheduler.num_preemptions,
            steps=self._num_steps,
            computed_tokens=self._num_computed,
            generated_tokens=self._num_generated,
            swap_pages=scheduler.swap.num_pages,
            swap_disk_pages=scheduler.swap.num_on_disk,
            swapped_out=scheduler.swap.num_out,
            swapped_in=scheduler.swap.num_in,
            evicted_slots=sum(sequence.evicted_slots for sequence in sequences),
            held_slots=sum(sequence.held_slots for sequence in sequences),
            store=None if self.stored is None else self.stored.stats(),
        )

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Compute once for all running requests, and return their events; no events if there is no work."""
        events, self._news = self._news, []
        if not self._states:
            return events
        self._num_steps += 1
        step = self.scheduler.schedule()
        for state, reason in step.failed:
            del self._states[state.id]
            events.append(Event(state.id, "failed", error=reason))
        if not step.decode and not step.prefill and self.stored is not None and self.scheduler.is_loading:
            self.stored.wait()
        decode = [(state, 1) for state in step.decode]
        # In a forward pass with chunks of prompts a scored policy could not let single tokens take freed slots. Next to
        # a prompt with a pattern single tokens would attend one sequence at a time.
        # Logits of all tokens of a prompt are many: one prompt at a time has them.
        alone = [[(state, count)] for state, count in step.prefill if state.is_scoring]
        prefill = [(state, count) for state, count in step.prefill if not state.is_scoring]
        passes = [decode, prefill] if self.caches.has_fixed_chunks else [[*decode, *prefill]]
        for work in [*passes, *alone]:
            for state, logits in self._forward(work) if work else ():
                events += self._news_of(state, logits)
        return events

    def _forward(self, work: Sequence[tuple[RequestState, int]]) -> list[tuple[RequestState, Tensor]]:
        """Run so many tokens of each request; returns those that are computed whole, with logits [V] of the next."""
        states, counts = [state for state, _ in work], np.array([count for _, count in work])
        tokens = np.zeros((len(states), counts.max()), dtype=np.int64)  # [B, T], padding is not computed
        for row, (state, count) in zip(tokens, work, strict=True):
            start = state.num_computed
            row[:count] = state.tokens[start : start + count]
        cache = self.caches.over([present(state.sequence) for state in states])
        padded = counts if counts.min() < tokens.shape[1] else None
        begin = time.perf_counter()
        is_scoring, first = states[0].is_scoring, states[0].num_computed  # then alone, see `step`
        logits = self.model(torch.from_numpy(tokens), cache, last_only=not is_scoring, num_valid=padded)
        if is_scoring:
            states[0].score(logits[0], first)
        logits = logits[:, -1]  # [B, V]
        self._num_computed += int(counts.sum())
        if self.stored is not None:
            self.stored.rate.add(int(counts.sum()), time.perf_counter() - begin)
        for state in states:
            self.scheduler.keep_pages(state)
        return [(state, row) for state, row in zip(states, logits, strict=True) if not state.pending]

    def _news_of(self, state: RequestState, logits: Tensor) -> list[Event]:
        """Events of the state's next token. An error in its own sampling or text ends this request alone."""
        try:
            is_first = state.num_generated == 0
            first, *rest = self._next_token(state, logits)
            return [replace(first, prompt=state.scored_prompt()) if is_first else first, *rest]
        except InputError as error:
            reason = str(error)
        except Exception as error:
            logging.getLogger(__name__).exception("request %d failed", state.id)
            reason = f"{type(error).__name__}: {error}"
        if state.id in self._states:
            self._over(state)
        return [Event(state.id, "failed", error=reason)]

    def _next_token(self, state: RequestState, logits: Tensor) -> list[Event]:
        """Draw the state's next token from logits [V]."""
        request = state.request
        if request.max_new_tokens == 0:
            return [self._ended(state, "length")]
        token = state.sampler(logits, state.tokens, len(request.tokens))
        stop_ids = self.model.config.eos_token_ids if request.stop_ids is None else request.stop_ids
        if token in stop_ids:
            return [self._ended(state, "stop")]
        state.tokens.append(token)
        self._num_generated += 1
        text = None if state.stream is None else state.stream.push(token)
        events = [Event(state.id, "token", token, text)]
        if request.logprobs is not None:
            scores = log_probabilities(logits, token, request.logprobs)
            events = [Event(state.id, "token", token, text, scores.chosen, scores.top)]
        if state.stream is not None and state.stream.stopped:
            events.append(self._ended(state, "stop"))
        elif state.num_generated == request.max_new_tokens:
            events.append(self._ended(state, "length"))
        return events

    def _ended(self, state: RequestState, reason: str) -> Event:
        self._over(state)
        return Event(
            state.id, "finished", text=None if state.stream is None else state.stream.flush(), finish_reason=reason
        )

    def _over(self, state: RequestState) -> None:
        del self._states[state.id]
        self.scheduler.end(state)


def pages_of_pool(model: Model, options: EngineOptions) -> int:
    """raises InputError where memory_bytes hold no page"""
    if options.num_pages is not None:
        return options.num_pages
    one = model.page_pool(1, options.page_size, options.max_batch)
    page_bytes = one.num_pages * one.page_bytes
    rings_bytes = one.num_rings * one.ring_bytes
    num_pages = (options.memory_bytes - rings_bytes) // page_bytes
    if num_pages < 1:
        rings = f" and the recent tokens of {options.max_batch} requests take {rings_bytes}"
        raise InputError(
            f"memory_bytes is {options.memory_bytes}, but a page takes {page_bytes}{rings if one.num_rings else ''}"
        )
    if options.prefix_caching:
        return num_pages
    # Finished requests keep no pages, so more would stay empty.
    return min(num_pages, options.max_batch * max(1, one.pages_for(model.config.max_positions)))
