"""Requests whose pages are copied out while others run, and back."""

import errno
import os
from dataclasses import replace

import pytest
from support.engine_runs import GREEDY, alone, assert_no_page_is_lost, prompt, run, tokens_of

from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.tiers.spill_file import SpillFile


def test_swapped_pages_are_not_computed_again(model):
    requests = [Request(prompt(seed, 40), GREEDY, 40, stop_ids=()) for seed in range(3)]
    computed, texts = [], []
    for preempt in ("recompute", "swap"):
        engine = Engine(model, EngineOptions(num_pages=9, prefix_caching=False, preempt=preempt))
        ids = [engine.submit(request) for request in requests]
        got = tokens_of(run(engine))
        texts.append([got[id] for id in ids])
        computed.append(engine.stats().computed_tokens)
        assert engine.stats().preemptions > 0
    assert computed[1] == 3 * (40 + 39) < computed[0]
    assert texts[0] == texts[1]


def test_swapped_pages_that_find_no_room_are_computed_again(model):
    page_bytes = Engine(model, EngineOptions(num_pages=1)).pool.page_bytes
    options = EngineOptions(num_pages=9, prefix_caching=False, preempt="swap", swap_bytes=3 * page_bytes)
    engine = Engine(model, options)
    requests = [Request(prompt(seed, 10), GREEDY, 60, stop_ids=()) for seed in range(6)]
    ids, events = [engine.submit(request) for request in requests], []
    most_out = 0
    while engine.has_work:
        events += engine.step()
        most_out = max(most_out, engine.stats().swap_pages)
    assert [tokens_of(events)[id] for id in ids] == [alone(model, request) for request in requests]
    assert 0 < most_out <= 3
    assert engine.stats().computed_tokens > 6 * (10 + 59)
    assert_no_page_is_lost(engine)


def test_a_request_that_is_aborted_while_it_is_swapped_out_leaves_nothing(model):
    engine = Engine(model, EngineOptions(num_pages=9, prefix_caching=False, preempt="swap"))
    for seed in range(3):
        engine.submit(Request(prompt(seed, 40), GREEDY, 40, stop_ids=()))
    while not engine.stats().swap_pages:
        engine.step()
    (swapped,) = [state for state in engine.scheduler.waiting if state.swapped is not None]
    engine.abort(swapped.id)
    assert engine.stats().swap_pages == 0 and engine.has_work
    run(engine)
    assert_no_page_is_lost(engine)


def test_a_version_that_is_forgotten_while_a_request_is_swapped_out(model):
    """The request goes on with its own pages, and leaves nothing to share."""
    engine = Engine(model, EngineOptions(num_pages=9, preempt="swap"))
    requests = [Request(prompt(seed, 40), GREEDY, 40, stop_ids=(), version="1") for seed in range(2)]
    ids, events = [engine.submit(request) for request in requests], []
    while not engine.stats().swap_pages:
        events += engine.step()
    engine.forget("1")
    events += run(engine)
    assert [tokens_of(events)[id] for id in ids] == [alone(model, request) for request in requests]
    hits = engine.stats().prefix_hit_tokens
    for request in requests:
        engine.submit(replace(request, max_new_tokens=1))
        run(engine)
    assert engine.stats().prefix_hit_tokens == hits
    assert_no_page_is_lost(engine)


@pytest.mark.parametrize("fails", [False, True], ids=["with room", "full"])
def test_pages_that_find_no_room_in_memory_go_to_the_disk(model, monkeypatch, fails):
    page_bytes = Engine(model, EngineOptions(num_pages=1)).pool.page_bytes
    limits = {"swap_bytes": page_bytes, "swap_disk_bytes": 1 << 24}
    engine = Engine(model, EngineOptions(num_pages=9, prefix_caching=False, preempt="swap", **limits))
    if fails:
        monkeypatch.setattr(SpillFile, "write", full_disk)
    requests = [Request(prompt(seed, 40), GREEDY, 40, stop_ids=()) for seed in range(3)]
    ids, events, most = [engine.submit(request) for request in requests], [], 0
    while engine.has_work:
        events += engine.step()
        most = max(most, engine.stats().swap_disk_pages)
    assert [tokens_of(events)[id] for id in ids] == [alone(model, request) for request in requests]
    assert (most > 0) != fails
    assert (engine.stats().computed_tokens == 3 * (40 + 39)) != fails
    assert engine.stats().swap_disk_pages == 0
    assert_no_page_is_lost(engine)


def full_disk(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
