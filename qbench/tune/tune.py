"""`tune`: every switch point measured within a time limit, and the gains."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from math import exp, log
from statistics import median

from qbench.kernels.linear import linears
from qbench.measure.host.conditions import busy_share
from qbench.measure.host.machine import available_cores, machine
from qbench.measure.tuning import VERSION, Tuning, use_shipped
from qbench.mla.fit import fit_costs
from qbench.mla.measure import Grid, ModePoint, measure_modes
from qbench.progress import Progress
from qbench.run.choices import set_threads
from qbench.runtime.attention.mla_costs import COSTS, PlanCosts
from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, mode_by
from qbench.sources import open_source
from qbench.tune.linears import LinearGain, Product, tune_linear
from qbench.tune.turns import ROUNDS
from quant.json_data import JsonData
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.present import present

# Two models of unlike sizes, which the fit needs to separate the terms.
GRIDS = {
    "ref:mla-moe": Grid((0, 256), (1,), (8, 64, 256), rounds=3, modes=(ELIDED, COMPRESSED), clock="cpu"),
    "rand:deepseek-v2-lite": Grid((0, 512), (1,), (32, 128, 192), rounds=1, modes=(ELIDED, COMPRESSED), clock="cpu"),
}
KV_FORMAT = "kv-f16"
LEAST_GAIN = 1.01


@dataclass(frozen=True, slots=True)
class LatentGain(JsonData):
    """costs: fitted, None: the shipped ones stay; gain: time of the shipped choices over that of the fitted ones"""

    costs: dict[str, float] | None
    gain: float
    points: int


def tune_latent() -> LatentGain:
    """Measure both plans at a few sizes and fit their costs."""
    configs, rows = {}, []
    for spec, grid in GRIDS.items():
        source = open_source(spec)
        configs[spec] = ModelConfig.of(source)
        rows += [row.point for row in measure_modes(KVSource(source, KV_FORMAT), grid)]
    found = fit_costs(rows, configs)
    names = {field.name for field in fields(PlanCosts)}
    return judged(rows, configs, {name: value for name, value in found.items() if name in names})


def judged(rows: Sequence[ModePoint], configs: Mapping[str, ModelConfig], costs: dict[str, float]) -> LatentGain:
    """The fitted costs if their choices take less time at the rows' sizes than the shipped ones'."""
    logs = []
    times = {(row.model, row.context, row.tokens, row.mode): row.ms for row in rows}
    for model, held, new in sorted({key[:3] for key in times}):
        config = configs[model]
        shipped, fitted = (
            times[model, held, new, mode_by(each, present(config.mla), config.num_heads, held, new).name]
            for each in (COSTS, PlanCosts(**costs))
        )
        logs.append(log(shipped / fitted))
    gain = exp(sum(logs) / len(logs))
    is_kept = gain >= LEAST_GAIN and costs != asdict(COSTS)
    return LatentGain(costs if is_kept else None, gain if is_kept else 1.0, len(logs))


# The formats of most files come first, in case the time does not suffice for all.
COMMON = ("q4_k", "q6_k", "q8_0", "q4_0", "q5_k", "iq4_xs")
LATENT_SHARE = 0.6  # of the time limit, after which latent plans are left as shipped
THREADS_GAIN = 1.03  # fewer threads than cores have to gain so much


@dataclass(frozen=True, slots=True)
class ThreadsGain(JsonData):
    """seconds: number of threads -> time of a token and of 64, in a product of 1024 x 2048; best: the least of them"""

    seconds: dict[str, list[float]]
    best: int
    gain: float


@dataclass(frozen=True, slots=True)
class TuneResult(JsonData):
    """The table and its gains. skipped: parts that the time limit left as shipped"""

    name: str
    table: Tuning
    linears: list[LinearGain]
    threads: ThreadsGain
    latent: LatentGain | None
    skipped: list[str]
    seconds: float
    busy_before: float


def tune(budget_s: float, progress: Progress | None = None) -> TuneResult:
    """Measure against the shipped points; nothing is kept yet."""
    start, busy, skipped = time.perf_counter(), busy_share(), list[str]()
    use_shipped()
    names = [kernel.op.removeprefix("linear_") for kernel in linears()]
    names.sort(key=lambda name: COMMON.index(name) if name in COMMON else len(COMMON))
    total, found = len(names) + 2, list[LinearGain]()

    def spent() -> float:
        return time.perf_counter() - start

    def report(done: int, name: str) -> None:
        if progress is not None:
            progress(done, total, name)

    longest = 0.0

    def tune_in_time(name: str) -> None:
        """A format is left as shipped if the longest so far would take more time than is left."""
        nonlocal longest
        before = spent()
        if before + longest > budget_s:
            return skipped.append(name)
        found.append(tune_linear(name))
        longest = max(longest, spent() - before)

    report(0, "threads")
    threads = tune_threads()
    with one_thread():
        for number, name in enumerate(names[: len(COMMON)]):
            report(1 + number, name)
            tune_in_time(name)
        report(1 + len(COMMON), "latent attention")
        latent = tune_latent() if spent() < LATENT_SHARE * budget_s else None
        for number, name in enumerate(names[len(COMMON) :]):
            report(2 + len(COMMON) + number, name)
            tune_in_time(name)
    table = Tuning(
        version=VERSION,
        machine=machine().id,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        linears=[one.measured for one in found if one.measured != one.shipped],
        threads=threads.best if threads.best < available_cores() else None,
        latent=None if latent is None else latent.costs,
    )
    skipped += [] if latent is not None else ["latent attention"]
    return TuneResult(table.name, table, found, threads, latent, skipped, spent(), busy)


@contextmanager
def one_thread() -> Iterator[None]:
    """Processor time counts the waits of several threads."""
    set_threads(1)
    try:
        yield
    finally:
        set_threads(available_cores())


def tune_threads() -> ThreadsGain:
    """All cores and half of them in turns, by the clock on the wall: two threads of a core may share its units."""
    cores, product = available_cores(), Product(COMMON[0])
    counts = sorted({max(1, cores // 2), cores})
    calls = [product.call(tokens, product.path(tokens)) for tokens in (1, 64)]
    samples: dict[int, list[list[float]]] = {count: [[] for _ in calls] for count in counts}
    for _ in range(ROUNDS):
        for count in counts:
            set_threads(count)
            for call, its in zip(calls, samples[count], strict=True):
                its.append(_wall_seconds(call))
    seconds = {count: [median(its) for its in of_calls] for count, of_calls in samples.items()}
    best, gain = best_threads(seconds)
    return ThreadsGain({str(count): its for count, its in seconds.items()}, best, gain)


def best_threads(seconds: Mapping[int, Sequence[float]]) -> tuple[int, float]:
    """The number of threads, and its gain over all cores: fewer ones only if all products gain THREADS_GAIN by them."""
    cores = max(seconds)
    gains = {
        count: min(of_all / its for of_all, its in zip(seconds[cores], found, strict=True))
        for count, found in seconds.items()
    }
    best = max(gains, key=lambda count: gains[count])
    return (best, gains[best]) if gains[best] >= THREADS_GAIN else (cores, 1.0)


def _wall_seconds(call: Callable[[], object], calls: int = 8) -> float:
    call()  # the threads are made by the first call
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls
