"""Instances of an engine on several ranks that lend pages to each other, on one workload."""

import json
import time
from dataclasses import dataclass
from typing import ClassVar

from qbench.calibration.open_subject import open_subject
from qbench.measure.metrics import Facts
from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.engine import EngineOptions, Event, Request
from qbench.runtime.lending import Instance, run_until_done
from qbench.runtime.parallel import Ranks
from qbench.throughput.run import ThroughputOptions, limits_of
from qbench.throughput.sides import EngineSide
from qbench.throughput.workload import Workload
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class InstanceFigures(JsonData):
    """One rank.

    pages      of its pool
    borrowed, lent, returned  pages; returned: of those that it lent
    same_text  requests with the text of an engine that has room for all of them
    """

    requests: int
    new_tokens: int
    pages: int
    borrowed: int
    lent: int
    returned: int
    same_text: int


@dataclass(frozen=True, slots=True)
class LendingRow(JsonData):
    """seconds, tok_s: of all instances together"""

    json_flat: ClassVar[tuple[str, ...]] = ("facts",)

    facts: Facts
    seconds: float
    tok_s: float
    workload: str
    seed: int
    batch: int
    chunk: int
    page_size: int
    instances: list[InstanceFigures]


def measure_lending(
    spec: str, workload: Workload, options: RunOptions, how: ThroughputOptions, memory_bytes: int, ranks: Ranks
) -> LendingRow:
    """Every rank calls it; request i belongs to instance i modulo their number.

    memory_bytes  of the pool of each instance
    raises        InputError for a model or options that cannot lend, and for a request that all pools cannot hold
    """
    subject = open_subject(spec, options)
    check_engine_source(subject.source, subject.options, {"--instances": True})
    model = load_model(subject.source, subject.options)
    assert isinstance(model, Model)
    jobs = workload.jobs(model.config.vocab_size)
    limits = EngineOptions(
        memory_bytes=memory_bytes,
        max_batch=how.batch,
        prefill_chunk=how.chunk,
        max_queue=len(jobs),
        prefix_caching=False,
    )
    instance = Instance(model, limits, ranks)
    for job in jobs:  # the same error on every rank
        instance.check_fits(len(job.tokens) + job.num_new)
    own = jobs[ranks.rank :: ranks.layout.num_ranks]
    number = {instance.submit(Request(job.tokens, max_new_tokens=job.num_new, stop_ids=())): job for job in own}
    ranks.meeting.tell("start", "")
    start = time.perf_counter()
    events = run_until_done(instance)
    seconds = time.perf_counter() - start
    texts = texts_of(events, list(number))
    alone = EngineSide(model, limits_of(model, workload, how)).run(own).tokens if own else []
    figures = InstanceFigures(
        requests=len(own),
        new_tokens=sum(map(len, texts)),
        pages=instance.engine.pool.num_pages,
        borrowed=instance.num_borrowed,
        lent=instance.num_lent,
        returned=instance.num_lent - instance.num_still_lent,
        same_text=sum(one == other for one, other in zip(texts, alone, strict=True)),
    )
    told = ranks.meeting.tell("figures", json.dumps(figures.to_json()))
    instances = [InstanceFigures.from_json(json.loads(text)) for text in told]
    new_tokens = sum(each.new_tokens for each in instances)
    return LendingRow(
        facts=subject.facts(model.impls),
        seconds=seconds,
        tok_s=new_tokens / seconds,
        instances=instances,
        workload=workload.name,
        seed=workload.seed,
        batch=how.batch,
        chunk=how.chunk,
        page_size=limits.page_size,
    )


def texts_of(events: list[Event], ids: list[int]) -> list[tuple[int, ...]]:
    """The tokens of each request. raises RuntimeError for one that has failed"""
    tokens: dict[int, list[int]] = {each: [] for each in ids}
    for event in events:
        if event.kind == "failed":
            raise RuntimeError(f"an instance failed a request of the workload: {event.error}")
        if event.kind == "token" and event.token is not None:
            tokens[event.request_id].append(event.token)
    return [tuple(its) for its in tokens.values()]
