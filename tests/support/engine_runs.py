"""An engine run to its end, and the answer to each request alone."""

from collections.abc import Sequence
from functools import cache

import torch

from qbench.runtime import Sampling, generate
from qbench.runtime.engine import Engine, Event, Request

GREEDY = Sampling()


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(torch.randint(0, 299, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


@cache
def alone(model, request: Request) -> tuple[int, ...]:
    return generate(model, request.tokens, request.sampling, request.max_new_tokens, stop_ids=request.stop_ids).tokens


def texts_together(engine: Engine, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Tokens of each request, all submitted at once; no request fails."""
    ids = [engine.submit(request) for request in requests]
    texts: dict[int, list[int]] = {id: [] for id in ids}
    for event in run(engine):
        assert event.kind != "failed", event.error
        if event.kind == "token":
            texts[event.request_id].append(event.token)
    return [tuple(texts[id]) for id in ids]


def texts_alone(model, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    return [alone(model, request) for request in requests]


def run(engine: Engine) -> list[Event]:
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def tokens_of(events: list[Event]) -> dict[int, tuple[int, ...]]:
    """Tokens of the requests that finished by themselves."""
    ended = {event.request_id for event in events if event.finish_reason in ("stop", "length")}
    return {id: tuple(e.token for e in events if (e.request_id, e.kind) == (id, "token")) for id in ended}


def assert_no_page_is_lost(engine: Engine) -> None:
    stats = engine.stats()
    assert (stats.queued, stats.running, stats.free_pages, stats.swap_pages) == (0, 0, stats.num_pages, 0)
    if engine.scheduler.tree is not None:
        engine.scheduler.tree.clear()
    assert engine.pool.num_free == engine.pool.num_pages
