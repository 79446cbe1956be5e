"""`bench`: the speed and memory of one model as a dictionary, from a spec to the numbers."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from qbench.calibration.open_subject import open_subject
from qbench.measure.host.energy import find_meter
from qbench.measure.host.machine import available_cores
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.measure.metrics import Facts, Memory, Metrics
from qbench.measure.speed_figures import MachinePeaks, Roofline, Speed, SpeedFigures
from qbench.measure.subject import Subject
from qbench.progress import Progress
from qbench.run.cache_spec import DYNAMIC, FULL
from qbench.run.choices import CPU, CUDA, set_threads
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.runtime.cache_suits import check_cache_suits
from qbench.runtime.offload import OffloadedModel, Use, check_limit
from qbench.speed.case_facts import CaseFacts, case_facts
from qbench.speed.case_memory import check_case_memory
from qbench.speed.disk import DiskProbe, disk_work, offload_of
from qbench.speed.machine_peaks import CurrentPeaks, busy_during, measure_machine_peaks
from qbench.speed.peaks import last_cache_bytes, measure_bandwidth
from qbench.speed.shares import fits_in_cache, operands_of, roofline
from qbench.speed.speed import time_model
from quant.models import ModelConfig
from quant.present import present


def bench(
    spec: str,
    case: SpeedWork,
    options: RunOptions = DEFAULTS,
    *,
    machine_peaks: MachinePeaks | None = None,
    progress: Progress | None = None,
) -> Metrics:
    """One case of `bench_cases`."""
    (row,) = bench_cases(spec, [case], options, machine_peaks=machine_peaks, progress=progress)
    return row


def bench_cases(
    spec: str,
    cases: Sequence[SpeedWork],
    options: RunOptions = DEFAULTS,
    *,
    threads: Sequence[int | None] = (),
    machine_peaks: MachinePeaks | None = None,
    progress: Progress | None = None,
) -> Iterator[Metrics]:
    """Throughput of prefill and decode, share of the roofline, and memory predicted and measured; one row per case.

    The model is loaded once. A row's peak is this process's own: the larger of that of loading and that of the case;
    `baseline_rss_bytes` was there before either. A row of a GPU has the peak of its memory, too.

    options   a cache other than dynamic is named in the row
    threads   several numbers of threads, one after the other, instead of the options' own
    machine_peaks  from another row: taken while they are young, and others leave as much of
              the machine as then; None: measured after each case
    returns   rows with spread and raw samples
    raises    InputError for impossible sizes, more tokens than the model's context holds, or more memory than there is
    """
    start = time.perf_counter()
    threads = threads or (options.threads,)
    asked = [(options.with_threads(threads[0]), case) for case in cases]
    loaded = load_subject(spec, asked, progress)
    known = None if machine_peaks is None else CurrentPeaks.of(machine_peaks)
    load_seconds = loaded.seconds
    for count in (each or available_cores() for each in threads):
        set_threads(count)
        subject = replace(loaded.subject, options=options.with_threads(count))
        for case in cases:
            found = replace(loaded.row(subject, case, known, progress), load_seconds=load_seconds)
            yield replace(found, seconds=time.perf_counter() - start)
            start, load_seconds = time.perf_counter(), 0.0  # the next case has the model loaded


@dataclass(frozen=True, slots=True)
class LoadedSubject:
    """A subject whose model is loaded.

    seconds     that opening and loading took
    peak_bytes  of this process meanwhile
    baseline    bytes that this process held before it loaded
    is_reset    whether peaks count from then on; False: from the start of the process
    """

    subject: Subject
    model: Any
    seconds: float
    peak_bytes: int
    baseline: int
    is_reset: bool

    def row(
        self,
        subject: Subject,
        case: SpeedWork,
        known: CurrentPeaks | None,
        progress: Progress | None,
        model: Any = None,
    ) -> Metrics:
        """`bench_case` of this model, or of another one with the same weights."""
        device = subject.options.device
        reset_peak_rss()
        reset_peak_device(device)
        facts, speed, memory, seconds = bench_case(subject, model or self.model, case, known, progress)
        return Metrics(facts=facts, speed=speed, memory=self.since_load(memory), peaks_seconds=seconds)

    def since_load(self, memory: Memory) -> Memory:
        """The memory of a case, with the peak of loading."""
        # The kernel's high-water mark is taken from counters that lag some pages behind, so that a small model's
        # may be below the memory that was held before it.
        return replace(
            memory,
            peak_rss_bytes=max(self.peak_bytes, memory.peak_rss_bytes or 0, self.baseline),
            peak_rss_since="load" if self.is_reset else "start",
            baseline_rss_bytes=self.baseline,
        )


def load_subject(
    spec: str, asked: Sequence[tuple[RunOptions, SpeedWork]], progress: Progress | None = None
) -> LoadedSubject:
    """The model of the first options, after all options and cases were checked.

    asked    pairs that have nothing but the cache in their options unlike
    raises   InputError as `bench_cases`
    """
    start, (options, _) = time.perf_counter(), asked[0]
    subject = open_subject(spec, options, progress)
    for its, case in asked:
        check_cache_suits(subject.source, its)
        case.check_context(ModelConfig.of(subject.source).max_positions)
        if options.device == CPU:
            check_case_memory(subject.source, its, case)
            check_limit(subject.source, its, Use(max(case.pp, case.depth, 1), case.batch, case.longest))
    is_reset, baseline = reset_peak_rss(), current_rss_bytes()
    model = load_model(subject.source, subject.options)
    return LoadedSubject(subject, model, time.perf_counter() - start, peak_rss_bytes(), baseline, is_reset)


class BandwidthProbe:
    """Measures the bandwidth between rounds, and leaves the buffer that it takes out of the peak of the memory.

    peak_bytes   of this process until the last call, without the probe's buffer
    seconds      that all calls took
    """

    def __init__(self, options: RunOptions) -> None:
        self.threads, self.device = present(options.threads), options.device
        self.peak_bytes, self.seconds = 0, 0.0

    def __call__(self) -> float:
        """Bytes per second now."""
        start = time.perf_counter()
        self.peak_bytes = max(self.peak_bytes, peak_rss_bytes())
        found = measure_bandwidth(self.threads, self.device)
        reset_peak_rss()
        self.seconds += time.perf_counter() - start
        return found


def bench_case(
    subject: Subject,
    model: Any,
    case: SpeedWork,
    known: CurrentPeaks | None,
    progress: Progress | None = None,
) -> tuple[Facts, Speed, Memory, float]:
    """Facts, speed and memory of a model that is loaded, and the seconds that measuring the machine peaks took.

    known    the machine peaks of an earlier case, measured again if they no longer hold
    """
    load_before, device = os.getloadavg(), subject.options.device
    about, probe = case_facts(subject, model, case), BandwidthProbe(subject.options)
    is_cold = not fits_in_cache(about.work, last_cache_bytes(device))
    if isinstance(model, OffloadedModel):
        probe, is_cold = DiskProbe(model, subject.threads), True
    figures, rounds = time_model(
        model,
        case,
        threads=subject.threads,
        meter=find_meter(),
        probe=probe if is_cold else None,
        progress=progress,
    )
    peak = max(probe.peak_bytes, peak_rss_bytes())
    memory = Memory(peak_rss_bytes=peak, peak_device_bytes=peak_device_bytes(device))
    start = time.perf_counter()
    holds = known is not None and known.holds(subject.threads, operands_of(about.work))
    if known is None or not holds or not known.is_like(busy_during(figures)):
        known = measure_machine_peaks(subject.threads, figures, device=device)
    seconds = probe.seconds + time.perf_counter() - start
    work = disk_work(about.work, model) if isinstance(model, OffloadedModel) else about.work
    speed = speed_of(about, case, figures, known, roofline(work, case, rounds, 0, known), subject.options)
    load = {"before": list(load_before), "after": list(os.getloadavg())}
    facts = subject.facts(model.impls, model.kernels, model.prefill_tally)  # again: prefills have been counted since
    return facts, replace(speed, load_average=load, offload=offload_of(model)), memory, seconds


def speed_of(
    about: CaseFacts,
    case: SpeedWork,
    figures: SpeedFigures,
    machine_peaks: CurrentPeaks,
    bounds: Roofline,
    options: RunOptions = DEFAULTS,
) -> Speed:
    """The figures of a case, and the bounds that they are compared with. options: name the cache"""
    return Speed(
        context=case.longest,
        batch=case.batch,
        pp=case.pp,
        tg=case.tg,
        depth=case.depth,
        figures=figures,
        roofline=bounds,
        peaks=machine_peaks.kept(),
        kv_bytes_per_token=about.kv_bytes_per_token,
        predicted_bytes=about.predicted_bytes,
        cache=None if options.cache == DYNAMIC else options.cache,
        policy=None if options.policy == FULL else options.policy,
    )


def reset_peak_device(device: str) -> None:
    """Start the peak again from the bytes that are held now."""
    if device == CUDA:
        torch.cuda.reset_peak_memory_stats()


def peak_device_bytes(device: str) -> int | None:
    """The peak since then; None without a GPU."""
    return torch.cuda.max_memory_allocated() if device == CUDA else None
