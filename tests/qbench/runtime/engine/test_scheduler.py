"""The scheduler without a model: who runs, who waits how long, and that pages come back."""

import random

import pytest
from support.pages import small_caches

from qbench.runtime.engine.options import EngineOptions
from qbench.runtime.engine.prefix_tree import PrefixTree
from qbench.runtime.engine.request import Request
from qbench.runtime.engine.scheduler import Scheduler, Step
from qbench.runtime.engine.state import RequestState

SIZE = 16


class Run:
    """A scheduler whose steps take no time: every token that it asks for is computed, and the next one is 1."""

    def __init__(self, num_pages: int = 64, **options) -> None:
        self.options = EngineOptions(num_pages=num_pages, **options)
        caches = small_caches(num_pages, SIZE)
        self.pool = caches.pool
        self.tree = PrefixTree(self.pool) if self.options.prefix_caching else None
        self.scheduler = Scheduler(caches, self.options, self.tree)
        self.states: list[RequestState] = []
        self.started: list[int] = []  # ids, in the order in which they ran first
        self.num_computed = 0
        self.num_steps = 0

    def submit(self, tokens: list[int], max_new_tokens: int = 4) -> RequestState:
        request = Request(tuple(tokens), max_new_tokens=max_new_tokens)
        state = RequestState(len(self.states), request, SIZE, None)
        self.states.append(state)
        self.scheduler.submit(state)
        return state

    def step(self) -> Step:
        step = self.scheduler.schedule()
        self.num_steps += 1
        self.check(step)
        self.started += [state.id for state in self.scheduler.running if state.id not in self.started]
        for state, count in [*((state, 1) for state in step.decode), *step.prefill]:
            state.sequence.seq_len += count
            self.num_computed += count
            self.scheduler.keep_pages(state)
            if not state.pending:
                state.tokens.append(1)
                if state.num_generated == state.request.max_new_tokens:
                    self.scheduler.end(state)
        return step

    def check(self, step: Step) -> None:
        """Conditions that hold at every step."""
        scheduler = self.scheduler
        assert len(scheduler.running) <= self.options.max_batch
        assert sum(count for _, count in step.prefill) <= self.options.prefill_chunk
        assert all(1 <= count <= state.pending for state, count in step.prefill)
        assert [state.id for state in scheduler.running] == sorted(state.id for state in scheduler.running)
        for state, count in [*((state, 1) for state in step.decode), *step.prefill]:
            sequence = state.sequence
            assert len(sequence.pages) * SIZE >= sequence.seq_len + count
            written = sequence.pages[sequence.seq_len // SIZE : -(-(sequence.seq_len + count) // SIZE)]
            assert all(self.pool.references(page) == 1 for page in written), "others read what would be written to"

    def finish(self, limit: int = 10_000) -> None:
        while self.scheduler.running or self.scheduler.waiting:
            assert self.num_steps < limit
            self.step()
        if self.tree is not None:
            self.tree.clear()
        assert self.pool.num_free == self.pool.num_pages


def prompt(seed: int, seq_len: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randint(2, 150) for _ in range(seq_len)]


WORKLOADS = {
    "memory for all": {"num_pages": 400},
    "memory for few": {"num_pages": 20},
    "no sharing": {"num_pages": 20, "prefix_caching": False},
    "one at a time": {"num_pages": 20, "max_batch": 1},
    "small chunks": {"num_pages": 40, "prefill_chunk": 8},
}


@pytest.mark.parametrize("options", WORKLOADS.values(), ids=WORKLOADS)
@pytest.mark.parametrize("seed", range(3))
def test_all_end_and_no_page_is_lost(options, seed):
    draw = random.Random(seed)
    run = Run(**options)
    documents = [prompt(number, draw.randint(1, 100)) for number in range(3)]
    aborted = set()
    while len(run.states) < 60:
        for _ in range(draw.randint(0, 3)):
            run.submit(draw.choice(documents) + prompt(draw.randint(0, 5), draw.randint(1, 50)), draw.randint(1, 60))
        run.step()
        live = [*run.scheduler.running, *run.scheduler.waiting]
        if live and draw.random() < 0.1:
            state = draw.choice(live)
            run.scheduler.end(state)
            aborted.add(state.id)
    run.finish()
    ended = [state for state in run.states if state.id not in aborted]
    assert ended and all(state.num_generated == state.request.max_new_tokens for state in ended)


def test_memory_that_runs_out_takes_pages_from_the_newest():
    run = Run(num_pages=8, prefix_caching=False)
    states = [run.submit(prompt(number, 20), 50) for number in range(3)]
    progress = []
    while states[0] in run.scheduler.running or not run.started:
        run.step()
        progress.append(states[0].num_generated)
    assert progress == list(range(1, 51)), "the oldest gets on in every step"
    assert run.scheduler.num_preemptions > 0
    run.finish()
    assert all(state.num_generated == 50 for state in states)


@pytest.mark.parametrize("bound", [0, 1, 5])
@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_overtaken_more_often_than_allowed(bound, seed):
    draw = random.Random(seed)
    run = Run(num_pages=100, max_batch=2, max_overtakes=bound)
    documents = [prompt(number, 40) for number in range(2)]
    for _ in range(60):
        run.submit(draw.choice(documents) + prompt(draw.randint(0, 99), 20), 3)
    run.finish()
    before = [sum(later > state for later in run.started[: run.started.index(state)]) for state in range(60)]
    assert max(before) <= bound
    assert (max(before) > 0) == (bound > 0), "and it is used: one of two prefixes is there when a request ends"


def test_a_request_that_waits_for_a_prefix_waits_for_few_others():
    """Another computes the prefix in many steps; meanwhile one later request may start first, and no second one."""
    run = Run(max_batch=4, max_overtakes=1, prefill_chunk=2 * SIZE)
    document = prompt(1, 20 * SIZE)
    run.submit([*document, 1, 2])
    run.step()
    run.submit([*document, 3, 4])
    run.submit(prompt(2, 20))
    run.submit(prompt(3, 20))
    run.step()
    assert run.started.index(1) < run.started.index(3) and run.states[0].pending > SIZE
    run.finish()


def test_prefixes_that_are_there_come_first():
    run = Run(max_batch=1)
    known, unknown = prompt(1, 40), prompt(2, 40)
    run.submit([*known, 1, 2])
    run.step()
    run.submit([*unknown, 1, 2])
    run.submit([*known, 3, 4])
    run.finish()
    assert run.started == [0, 2, 1]


@pytest.mark.parametrize("chunk", [64, 500])
def test_a_prefix_that_many_ask_for_at_once_is_computed_once(chunk):
    run = Run(num_pages=400, prefill_chunk=chunk)
    document = prompt(1, 20 * SIZE)
    for question in range(30):
        run.submit([*document, *prompt(question + 2, 10)], max_new_tokens=1)
    run.finish()
    assert run.num_computed == len(document) + 30 * 10


def test_a_short_prompt_does_not_wait_for_a_long_one():
    run = Run(num_pages=200, prefill_chunk=64)
    long = run.submit(prompt(1, 2000))
    run.step()
    short = run.submit(prompt(2, 32))
    run.step()
    assert (short.num_generated, long.num_generated) == (1, 0)


def test_a_long_prompt_takes_at_most_twice_its_steps_next_to_any_others():
    alone, crowded = Run(num_pages=400, prefill_chunk=64), Run(num_pages=400, prefill_chunk=64)
    lonely, long = alone.submit(prompt(1, 1000)), crowded.submit(prompt(1, 1000))
    while not lonely.num_generated:
        alone.step()
    while not long.num_generated:
        for _ in range(3):
            crowded.submit(prompt(len(crowded.states) + 5, 32))
        crowded.step()
    assert crowded.num_steps <= 2 * alone.num_steps
    crowded.finish()


def test_out_of_pages_with_nothing_to_preempt_fails_only_its_request_with_a_reason():
    run = Run(num_pages=4)
    held = [run.pool.allocate() for _ in range(2)]  # by somebody else
    growing = run.submit(prompt(1, 20), 40)
    failed = []
    while not failed:
        failed = run.step().failed
    ((state, reason),) = failed
    assert state is growing and "out of pages: 0 of 4 are free" in reason
    assert growing.num_generated == 2 * SIZE - 20 + 1
    waiting = run.submit(prompt(2, 40))
    ((state, reason),) = run.step().failed
    assert state is waiting and "out of pages: 2 of 4 are free" in reason
    for page in held:
        run.pool.release(page)
    again = run.submit(prompt(1, 20), 40)
    run.finish()
    assert again.num_generated == 40


def test_a_request_of_all_pages_runs_though_its_prefix_is_shared_in_part():
    run = Run(num_pages=4)
    run.submit(prompt(1, 4 * SIZE - 1), 1)
    run.step()
    other = prompt(1, 4 * SIZE - 1)
    other[-10] = 151
    state = run.submit(other, 1)
    assert not run.step().failed
    assert state.num_generated == 1
    run.finish()


def test_a_running_request_makes_no_page_young_again():
    """Its prompt was computed at 0 by another; the tokens until 12 are as old, and later requests start again."""
    run, now = Run(), [0.0]
    run.tree.max_age_s, run.tree.clock = 10, lambda: now[0]
    document = prompt(1, 4 * SIZE)
    run.submit([*document, 3], 1)
    run.step()
    now[0] = 9
    answer = run.submit([*document, 4], 3 * SIZE)
    run.step()
    assert run.scheduler.num_hit_tokens == 4 * SIZE
    now[0] = 12
    while answer in run.scheduler.running:
        run.step()
    run.submit([*document, 5], 1)
    run.finish()
    assert run.scheduler.num_hit_tokens == 4 * SIZE


def test_no_page_is_named_if_no_page_is_shared():
    run = Run(prefix_caching=False)
    states = [run.submit(prompt(number, 40)) for number in range(3)]
    run.finish()
    assert not any(state.chain._digests for state in states)
