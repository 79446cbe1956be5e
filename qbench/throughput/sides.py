"""Ways to get through a list of jobs with a model of ours: the engine, or one batch after another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from qbench.measure.host.conditions import CLOCKS, Clock
from qbench.runtime import Model
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.engine import Engine, EngineOptions, Request, StoreStats
from qbench.runtime.tiers.block_store import BlockStore
from qbench.throughput.workload import Job
from quant.present import present


@dataclass(frozen=True, slots=True)
class Outcome:
    """seconds; tokens of each job; first_s: when each job's first token was there; computed: tokens of all passes"""

    seconds: float
    tokens: list[tuple[int, ...]]
    first_s: list[float]
    computed: int


class EngineSide:
    """Continuous batching; a new engine for each run, so that nothing is left of the last.

    open_store  makes the block store in which prefixes outlive a run; None: they do not
    store       statistics of the store, summed over the runs
    """

    def __init__(
        self,
        model: Model,
        options: EngineOptions,
        clock: Clock = CLOCKS["wall"],
        open_store: Callable[[PagePool], BlockStore] | None = None,
    ) -> None:
        self.model = model
        self.clock = clock
        self.options = options
        self.open_store = open_store
        self.store: StoreStats | None = None

    def run(self, jobs: Sequence[Job]) -> Outcome:
        engine = Engine(self.model, replace(self.options, max_queue=max(1, len(jobs))), open_store=self.open_store)
        start = self.clock()
        order = {
            engine.submit(Request(job.tokens, max_new_tokens=job.num_new, stop_ids=())): index
            for index, job in enumerate(jobs)
        }
        tokens: list[list[int]] = [[] for _ in jobs]
        first_s = [0.0] * len(jobs)
        while engine.has_work:
            events = engine.step()
            now = self.clock() - start
            for event in events:
                if event.kind == "token":
                    mine = tokens[order[event.request_id]]
                    mine.append(present(event.token))
                    if len(mine) == 1:
                        first_s[order[event.request_id]] = now
                elif event.kind == "failed":
                    raise RuntimeError(f"the engine failed a request of the workload: {event.error}")
        seconds = self.clock() - start
        engine.close()
        if (store := engine.stats().store) is not None:
            self.store = store if self.store is None else self.store + store
        return Outcome(seconds, [tuple(each) for each in tokens], first_s, engine.stats().computed_tokens)


class StaticSide:
    """Batches in the order of arrival, each done when its longest is, as frameworks without a scheduler run them."""

    def __init__(self, model: Model, batch: int, clock: Clock = CLOCKS["wall"]) -> None:
        self.model = model
        self.clock = clock
        self.batch = batch

    @torch.inference_mode()
    def run(self, jobs: Sequence[Job]) -> Outcome:
        start, computed = self.clock(), 0
        tokens: list[tuple[int, ...]] = []
        first_s: list[float] = []
        for index in range(0, len(jobs), self.batch):
            some = jobs[index : index + self.batch]
            lengths = np.array([len(job.tokens) for job in some])
            num_new = max(job.num_new for job in some)
            prompts = torch.zeros(len(some), int(lengths.max()), dtype=torch.int64)  # [B, T]
            for row, job in zip(prompts, some, strict=True):
                row[: len(job.tokens)] = torch.tensor(job.tokens)
            cache = self.model.new_cache(len(some), prompts.shape[1] + num_new)
            step = self.model(prompts, cache, last_only=True, num_valid=lengths)[:, -1].argmax(-1)  # [B]
            first_s += [self.clock() - start] * len(some)
            steps = [step]
            for _ in range(num_new - 1):
                steps.append(step := self.model(step[:, None], cache, last_only=True)[:, -1].argmax(-1))
            computed += int(lengths.sum()) + (num_new - 1) * len(some)
            rows = torch.stack(steps, 1).tolist()  # [B, num_new]
            tokens += [tuple(row[: job.num_new]) for row, job in zip(rows, some, strict=True)]
        return Outcome(self.clock() - start, tokens, first_s, computed)
