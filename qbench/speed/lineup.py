"""`bench_lineup`: one loaded model with several caches and depths that take turns, and the ratios of their speeds."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch

from qbench.measure.host.energy import find_meter
from qbench.measure.host.machine import available_cores
from qbench.measure.host.memory import free_memory_bytes, peak_rss_bytes, reset_peak_rss
from qbench.measure.metrics import Memory, Metrics
from qbench.measure.speed_figures import SpeedFigures
from qbench.measure.subject import Subject
from qbench.progress import Progress
from qbench.run.cache_spec import FULL
from qbench.run.choices import CPU, CUDA, set_threads
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime.memory import MemoryPredictor
from qbench.speed.bench import (
    BandwidthProbe,
    LoadedSubject,
    bench_cases,
    load_subject,
    peak_device_bytes,
    reset_peak_device,
    speed_of,
)
from qbench.speed.case_facts import CaseFacts, case_facts
from qbench.speed.case_memory import device_parts_of_case, parts_of_case
from qbench.speed.entry import Entry
from qbench.speed.interleaved import interleave_cases
from qbench.speed.machine_peaks import measure_machine_peaks
from qbench.speed.peaks import last_cache_bytes
from qbench.speed.shares import fits_in_cache, roofline
from qbench.speed.speed import cached_statistics, rate_ratios
from qbench.speed.speed_worker import TimedModel
from quant.present import present
from quant.source import Source

LIMITED = "--memory divides its limit between the weights and one KV cache"


def bench_lineup(
    spec: str,
    entries: Sequence[Entry],
    options: RunOptions = DEFAULTS,
    *,
    threads: Sequence[int | None] = (),
    progress: Progress | None = None,
) -> Iterator[Metrics]:
    """For each number of threads a row per entry, as `bench_cases` has them, and its ratio to the first entry.

    All entries share the weights and take turns in rounds of a random order; each keeps its cache meanwhile. If the
    caches do not fit into memory together, entries run one after another, without a ratio, and each row says why.

    entries  with the same phases and repetitions; the time limit is that of one entry times their number
    raises   InputError as `bench_cases`
    """
    threads = threads or (options.threads,)
    if len(entries) == 1 or options.memory_bytes is not None:
        yield from _each_loaded(spec, entries, options, threads, progress)
        return
    start = time.perf_counter()
    asked = [(entry.options(options).with_threads(threads[0]), entry.case) for entry in entries]
    loaded = load_subject(spec, asked, progress)
    why = why_not_together(loaded.subject.source, loaded.model, asked)
    for count in (each or available_cores() for each in threads):
        set_threads(count)
        rows = [_Row.of(entry, loaded, count) for entry in entries]
        found = _in_turns(rows, loaded, progress) if why is None else _in_order(rows, loaded, why, progress)
        for row in found:
            yield replace(row, load_seconds=loaded.seconds, seconds=time.perf_counter() - start)
            start, loaded = time.perf_counter(), replace(loaded, seconds=0.0)


def _each_loaded(
    spec: str,
    entries: Sequence[Entry],
    options: RunOptions,
    threads: Sequence[int | None],
    progress: Progress | None,
) -> Iterator[Metrics]:
    """For each number of threads a row per entry; neighbours with the same cache share a model."""
    for count in threads:
        for _, group in groupby(entries, key=attrgetter("layout", "policy")):
            same = list(group)
            how, cases = same[0].options(options).with_threads(count), [entry.case for entry in same]
            for row in bench_cases(spec, cases, how, progress=progress):
                yield _with_reason(row, LIMITED) if len(entries) > 1 else row


def _with_reason(row: Metrics, why: str) -> Metrics:
    return replace(row, speed=replace(present(row.speed), not_interleaved=why))


@dataclass(frozen=True, slots=True)
class _Row:
    """An entry with its model and its subject."""

    entry: Entry
    subject: Subject
    model: Any
    about: CaseFacts

    @classmethod
    def of(cls, entry: Entry, loaded: LoadedSubject, threads: int) -> "_Row":
        options = entry.options(loaded.subject.options.with_threads(threads))
        model, subject = loaded.model.cached_by(options.cache_spec), replace(loaded.subject, options=options)
        return cls(entry, subject, model, case_facts(subject, model, entry.case))

    def turn_case(self, num_rows: int) -> SpeedWork:
        """The case with the time limit of all rows together."""
        case = self.entry.case
        return case if case.budget_s is None else replace(case, budget_s=case.budget_s * num_rows)


def _in_order(rows: Sequence[_Row], loaded: LoadedSubject, why: str, progress: Progress | None) -> Iterator[Metrics]:
    for row in rows:
        found = loaded.row(row.subject, row.entry.case, None, progress, row.model)
        yield _with_reason(found, why)


def _in_turns(rows: Sequence[_Row], loaded: LoadedSubject, progress: Progress | None) -> Iterator[Metrics]:
    options, load_before = rows[0].subject.options, os.getloadavg()
    threads, device = present(options.threads), options.device
    reset_peak_rss()
    reset_peak_device(device)
    probe, sides = BandwidthProbe(options), [TimedModel(row.model) for row in rows]
    is_cold = not all(fits_in_cache(row.about.work, last_cache_bytes(device)) for row in rows)
    rounds = interleave_cases(
        sides,
        [row.turn_case(len(rows)) for row in rows],
        threads=threads,
        meter=find_meter(),
        probe=probe if is_cold else None,
        progress=progress,
    )
    peak = max(probe.peak_bytes, peak_rss_bytes())
    memory = loaded.since_load(Memory(peak_rss_bytes=peak, peak_device_bytes=peak_device_bytes(device)))
    figures = [cached_statistics(row.entry.case, rounds, i, sides[i].cache) for i, row in enumerate(rows)]
    start = time.perf_counter()
    peaks = measure_machine_peaks(threads, figures[0], device=device)
    seconds = probe.seconds + time.perf_counter() - start
    load = {"before": list(load_before), "after": list(os.getloadavg())}
    for index, row in enumerate(rows):
        bounds = roofline(row.about.work, row.entry.case, rounds, index, peaks)
        its = _with_names(figures[index], rows, index)
        speed = speed_of(row.about, row.entry.case, its, peaks, bounds, row.subject.options)
        yield Metrics(
            # again: prefills have been counted since
            facts=row.subject.facts(row.model.impls, row.model.kernels, row.model.prefill_tally),
            speed=replace(speed, load_average=load),
            memory=replace(memory, cases_at_once=len(rows)),
            ratio=rate_ratios(figures[0], its) if index else None,
            ratio_to=rows[0].entry.name if index else None,
            peaks_seconds=seconds,
            explicit=frozenset({"ratio"}),
        )


def _with_names(figures: SpeedFigures, rows: Sequence[_Row], index: int) -> SpeedFigures:
    names = [row.entry.name for row in rows]
    others = names[:index] + names[index + 1 :]
    return replace(figures, samples=replace(present(figures.samples), interleaved_with=others))


def why_not_together(source: Source, model: Any, asked: Sequence[tuple[RunOptions, SpeedWork]]) -> str | None:
    """One clause if the caches need more memory than is free; None if they fit.

    model    loaded from the source
    asked    options and case of each cache
    """
    sizes = [_cache_and_workspace(source, model, *each) for each in asked]
    needed = sum(kept for kept, _ in sizes) + max(workspace for _, workspace in sizes)
    device = asked[0][0].device
    free = torch.cuda.mem_get_info()[0] if device == CUDA else free_memory_bytes()
    if needed <= free:
        return None
    return f"the caches of all {len(asked)} cases need {needed} bytes together, and {free} bytes are free"


def _cache_and_workspace(source: Source, model: Any, options: RunOptions, case: SpeedWork) -> tuple[int, int]:
    """Bytes that the cache holds, and those of a forward pass."""
    if options.device == CPU:
        predictor = MemoryPredictor(source, impl=model.impl, spec=options.cache_spec, attention=options.attention)
        parts = parts_of_case(predictor, case)
        kept, workspace = parts.kv_bytes, parts.workspace_bytes
    else:
        found = device_parts_of_case(model.cached_by(options.cache_spec), source, case)
        kept, workspace = found["kv_bytes"], found["workspace_bytes"]
    kept = options.cache_spec.ram_bytes(kept)
    # A cache that evicts also keeps a copy of the tokens to which each repetition goes back.
    return (kept if options.policy == FULL else 2 * kept), workspace
