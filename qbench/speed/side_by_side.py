"""`bench A B`: several models, each in a process of its own, phase by phase in turn; and the ratios of their speeds."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from qbench.calibration.open_subject import with_kv_format
from qbench.measure.host.conditions import check_clock
from qbench.measure.host.energy import find_meter
from qbench.measure.host.machine import available_cores
from qbench.measure.metrics import Memory, Metrics
from qbench.progress import Progress
from qbench.run.choices import check_threads
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import SpeedWork
from qbench.sources import open_source
from qbench.speed.bench import speed_of
from qbench.speed.case_facts import CaseFacts
from qbench.speed.case_memory import check_case_memory
from qbench.speed.interleaved import interleave
from qbench.speed.machine_peaks import measure_machine_peaks
from qbench.speed.peaks import last_cache_bytes, measure_bandwidth
from qbench.speed.shares import fits_in_cache, roofline
from qbench.speed.speed import rate_ratios, speed_statistics
from qbench.speed.timed_process import TimedProcess, speed_process
from quant.errors import InputError
from quant.models import ModelConfig
from quant.recipes import get_recipe


@dataclass(frozen=True, slots=True)
class Contender:
    """A model, and the recipe that it is quantized by while it loads."""

    spec: str
    recipe: str | None = None

    @property
    def name(self) -> str:
        return self.spec if self.recipe is None else f"{self.spec} as {self.recipe}"


def contenders(specs: Sequence[str], recipes: Sequence[str]) -> list[Contender]:
    """A recipe for each model, one for all, or several of one model.

    raises   InputError for any other number of recipes
    """
    if not recipes:
        return [Contender(spec) for spec in specs]
    if len(specs) == 1 or len(recipes) == 1:
        return [Contender(spec, recipe) for spec in specs for recipe in recipes]
    if len(recipes) != len(specs):
        raise InputError(f"{len(specs)} models and {len(recipes)} recipes; give one recipe, or one for each model")
    return [Contender(spec, recipe) for spec, recipe in zip(specs, recipes, strict=True)]


def bench_side_by_side(
    contenders: Sequence[Contender],
    cases: Sequence[SpeedWork],
    options: RunOptions = DEFAULTS,
    *,
    threads: Sequence[int | None] = (None,),
    clock: str = "wall",
    progress: Progress | None = None,
) -> Iterator[list[Metrics]]:
    """For each number of threads and case a row a contender, as `bench` has them, and its ratio to the first.

    clock    "wall", or "cpu": the time that each process gets, of one thread
    ratio    {"pp": Estimate's fields, "tg": ...}: how many times as fast as the first, of the same rounds
    raises   InputError as `bench` does, in the words of the contender's process
    """
    check(contenders, cases, options, threads, clock)
    for count in threads:
        used = count or available_cores()
        with ExitStack() as stack:
            sides = []
            for one in contenders:
                own = replace(options, recipe=one.recipe, threads=used)
                sides.append(stack.enter_context(speed_process(one.spec, own, clock=clock)))
            for case in cases:
                yield rows_of_case(contenders, sides, case, used, clock, progress)


def check(
    contenders: Sequence[Contender],
    cases: Sequence[SpeedWork],
    options: RunOptions,
    threads: Sequence[int | None],
    clock: str,
) -> None:
    """raises InputError for options that a process would refuse, before one is started"""
    for count in threads:
        check_threads(count)
        check_clock(clock, count or available_cores())
    for one in contenders:
        source = open_source(one.spec)
        limit = ModelConfig.of(source).max_positions
        for case in cases:
            case.check_context(limit)
            check_case_memory(with_kv_format(source, options.kv_format, options.device), options, case)
        if one.recipe is not None:
            get_recipe(one.recipe)


def rows_of_case(
    contenders: Sequence[Contender],
    sides: Sequence[TimedProcess],
    case: SpeedWork,
    threads: int,
    clock: str,
    progress: Progress | None,
) -> list[Metrics]:
    start, load_before = time.perf_counter(), os.getloadavg()
    facts = [CaseFacts.from_json(side.call("facts", {"case": case.to_json()})) for side in sides]
    is_cold = not all(fits_in_cache(about.work, last_cache_bytes()) for about in facts)
    probe = partial(measure_bandwidth, threads) if is_cold else None
    rounds = interleave(sides, case, threads=threads, meter=find_meter(), probe=probe, progress=progress)
    speeds = [speed_statistics(case, rounds, index) for index in range(len(sides))]
    machine_peaks = measure_machine_peaks(threads, speeds[0])
    load = {"before": list(load_before), "after": list(os.getloadavg())}
    names, rows = [one.name for one in contenders], []
    for index, side in enumerate(sides):
        about, figures = facts[index], speeds[index]
        if figures.samples is not None:
            others = names[:index] + names[index + 1 :]
            figures = replace(figures, samples=replace(figures.samples, interleaved_with=others))
        bounds = roofline(about.work, case, rounds, index, machine_peaks)
        speed = replace(speed_of(about, case, figures, machine_peaks, bounds), load_average=load, clock=clock)
        memory = Memory.from_json(side.call("memory", {}))
        ratio = rate_ratios(speeds[0], speeds[index]) if index else None
        # Asked for again: prefills have been counted since.
        own_facts = CaseFacts.from_json(side.call("facts", {"case": case.to_json()})).facts
        rows.append(Metrics(facts=own_facts, speed=speed, memory=memory, ratio=ratio, explicit=frozenset({"ratio"})))
    seconds = time.perf_counter() - start
    return [replace(row, seconds=seconds) for row in rows]
