"""All contenders through the same jobs in turn, and how many times as fast as each the engine is."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from qbench.calibration.open_subject import open_subject, with_kv_format
from qbench.measure.host.conditions import CLOCKS, busy_share, check_clock
from qbench.measure.host.memory import usable_memory_bytes
from qbench.measure.metrics import Facts
from qbench.progress import Progress
from qbench.run.cache_spec import DENSE, FULL
from qbench.run.options import DEFAULTS, RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.engine import EngineOptions, StoreOptions, StoreStats, most_tokens, store_opener
from qbench.sources import open_source
from qbench.speed.case_memory import check_batch_memory
from qbench.speed.timed_process import TimedProcess
from qbench.statistics.intervals import spread
from qbench.throughput.sides import EngineSide, Outcome, StaticSide
from qbench.throughput.workload import Job, Workload
from qbench.versus.compare import DEFAULT_KV, check_file, kv_type_of
from qbench.versus.llama_cpp import WORKER
from quant.errors import InputError
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.source import Source

CASE_KEYS = (
    "model",
    "recipe",
    "kv_format",
    "policy",
    "prefill_chunk",
    "prefill",
    "compute",
    "workload",
    "seed",
    "batch",
    "chunk",
    "threads",
    "clock",
)
OURS, STATIC, ALONE = "engine", "static batches", "engine without reuse"
STORED = "engine with KV store"
WARM_UP_TOKENS = 2  # of each of the first batch's jobs: all code has run, and memory was touched

Run = Callable[[Sequence[Job]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputOptions:
    """How contenders run.

    batch   sequences at once, for every contender
    chunk   tokens of prompts that the engine computes per step
    rounds  of all contenders in turn
    vs      "llama.cpp": also compare with it, with `batch` sequences at once and with one; needs a GGUF file
    clock   "wall", or "cpu": the time of each contender's process, which then has one thread
    store   also run an engine that keeps prefixes there; its runs find those of the warm-up and of earlier rounds
    """

    batch: int = 16
    chunk: int = 256
    rounds: int = 3
    vs: str | None = None
    clock: str = "wall"
    store: StoreOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderFigures(JsonData):
    """Medians over the rounds.

    tok_s      new tokens per second
    computed   tokens that went through the model, of prompts and new ones
    ttft_ms    of the median request, all of which are there from the start
    ratio      this contender's time over the engine's, round by round
    same_text  share of requests with the same tokens as the engine's first round
    samples    seconds of each round
    """

    tok_s: float
    computed: int
    ttft_ms: float
    ratio: dict[str, float]
    same_text: float
    samples: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRow(JsonData):
    """Each contender's figures on one workload.

    policy, prefill_chunk  of the KV cache; policy None: full
    busy_before            share of the machine that others took
    kv_store               summed over the engines with a store, one per round; None: no engine had a store
    """

    json_flat = ("facts",)
    json_omits = ("policy", "prefill_chunk", "kv_store")

    facts: Facts
    compute: str
    workload: str
    seed: int
    batch: int
    chunk: int
    clock: str
    new_tokens: int
    busy_before: float
    contenders: dict[str, ContenderFigures]
    policy: str | None = None
    prefill_chunk: int | None = None
    kv_store: StoreStats | None = None


DEFAULT_HOW = ThroughputOptions()


def measure_throughput(
    spec: str,
    workload: Workload,
    options: RunOptions = DEFAULTS,
    how: ThroughputOptions = DEFAULT_HOW,
    *,
    progress: Progress | None = None,
) -> ThroughputRow:
    """One row: each contender's figures, and the ratio of its time to the engine's.

    raises   InputError for a model or workload that cannot run
    """
    busy = busy_share()
    if how.vs is not None:
        if options.prefill != DENSE:
            raise InputError(f"--vs {how.vs} has no prefill patterns; leave out --vs or --prefill {options.prefill}")
        check_file(spec)
        options = replace(options, kv_format=options.kv_format or DEFAULT_KV)
    check_size(with_kv_format(open_source(spec), options.kv_format, options.device), workload, options, how)
    subject = open_subject(spec, options, progress)
    check_clock(how.clock, subject.threads)
    check_engine_source(subject.source, subject.options, {"--kv-store": how.store is not None})
    model = load_model(subject.source, subject.options)
    assert isinstance(model, Model)  # on the CPU
    model.lead()
    jobs = workload.jobs(model.config.vocab_size)
    opener = store_opener(subject.source, model, options.compute, how.store)
    with _contenders(model, workload, how, spec, subject.threads) as runs:
        stored = None
        if opener is not None:
            stored = EngineSide(model, limits_of(model, workload, how), CLOCKS[how.clock], opener)
            runs[STORED] = stored.run
        outcomes = _interleaved(runs, jobs, how, progress)
    return ThroughputRow(
        facts=subject.facts(model.impls, tally=model.prefill_tally),
        compute=options.compute,
        workload=workload.name,
        seed=workload.seed,
        batch=how.batch,
        chunk=how.chunk,
        clock=how.clock,
        new_tokens=sum(job.num_new for job in jobs),
        busy_before=busy,
        contenders={name: _figures(mine, outcomes[OURS]) for name, mine in outcomes.items()},
        policy=None if options.policy == FULL else options.policy,
        prefill_chunk=options.prefill_chunk,
        kv_store=None if stored is None else stored.store,
    )


def check_size(source: Source, workload: Workload, options: RunOptions, how: ThroughputOptions) -> None:
    """raises InputError for requests beyond the model's context, and for more of them than memory holds"""
    context = most_tokens(ModelConfig.of(source))
    if workload.longest > context:
        raise InputError(f"requests of up to {workload.longest} tokens, but the model's context holds {context}")
    workload.check_memory(usable_memory_bytes())
    check_batch_memory(source, options, how.batch, workload.longest)


def limits_of(model: Model, workload: Workload, how: ThroughputOptions) -> EngineOptions:
    """Room for a whole batch of the longest, and one more for their document: no request is preempted."""
    one = model.page_pool(1, EngineOptions().page_size, how.batch)
    num_pages = (how.batch + 1) * (one.pages_for(workload.longest) + 1)
    return EngineOptions(num_pages=num_pages, max_batch=how.batch, prefill_chunk=how.chunk)


@contextmanager
def _contenders(
    model: Model, workload: Workload, how: ThroughputOptions, spec: str, threads: int
) -> Iterator[dict[str, Run]]:
    batch, clock = how.batch, CLOCKS[how.clock]
    limits = limits_of(model, workload, how)
    runs: dict[str, Run] = {OURS: EngineSide(model, limits, clock).run}
    if workload.document:
        runs[ALONE] = EngineSide(model, replace(limits, prefix_caching=False), clock).run
    else:
        runs[STATIC] = StaticSide(model, batch, clock).run
    if how.vs is None:
        yield runs
        return
    settings = {"model": str(Path(spec).expanduser()), "threads": threads, "slots": batch}
    settings |= {"context": workload.longest, "kv": kv_type_of(model), "clock": how.clock}
    with TimedProcess("llama.cpp", WORKER, settings) as process:
        for slots in sorted({batch, 1}, reverse=True):
            runs[f"llama.cpp, {slots} at once"] = llama_cpp_run(process, slots)
        yield runs


def llama_cpp_run(process: TimedProcess, slots: int) -> Run:
    """llama.cpp in a worker of this package, with so many sequences at once."""

    def run(jobs: Sequence[Job]) -> Outcome:
        given = [(job.tokens, job.num_new) for job in jobs]
        answer = process.call("generate", {"jobs": given, "slots": slots})
        return Outcome(**answer | {"tokens": [tuple(tokens) for tokens in answer["tokens"]]})

    return run


def _interleaved(
    runs: dict[str, Run], jobs: list[Job], how: ThroughputOptions, progress: Progress | None
) -> dict[str, list[Outcome]]:
    """Each contender's outcomes, a round each; who is first changes from round to round."""
    for run in runs.values():
        run([Job(job.tokens, min(job.num_new, WARM_UP_TOKENS)) for job in jobs[: how.batch]])
    outcomes: dict[str, list[Outcome]] = {name: [] for name in runs}
    start = time.perf_counter()
    for number in range(how.rounds):
        for name in list(runs) if number % 2 == 0 else list(runs)[::-1]:
            outcomes[name].append(runs[name](jobs))
            if progress:
                done = sum(map(len, outcomes.values()))
                progress(done, how.rounds * len(runs), f"{time.perf_counter() - start:.0f} s")
    return outcomes


def _figures(mine: list[Outcome], ours: list[Outcome]) -> ContenderFigures:
    count = sum(map(len, mine[0].tokens))
    return ContenderFigures(
        tok_s=median(count / outcome.seconds for outcome in mine),
        computed=mine[0].computed,
        ttft_ms=median(1e3 * median(outcome.first_s) for outcome in mine),
        ratio=spread([outcome.seconds / our.seconds for outcome, our in zip(mine, ours, strict=True)]),
        same_text=sum(map(tuple.__eq__, mine[0].tokens, ours[0].tokens)) / len(mine[0].tokens),
        samples=[outcome.seconds for outcome in mine],
    )
