"""`bench`: the speed and memory of one model as a dictionary, from a spec to the numbers."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from qbench.cache_spec import DYNAMIC, FULL
from qbench.calibration.open_subject import open_subject
from qbench.measure.host.device_memory import peak_device_bytes, reset_peak_device
from qbench.measure.host.energy import find_meter
from qbench.measure.host.machine import available_cores
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.measure.metrics import Facts, MachinePeaks, Memory, Metrics, Speed, SpeedFigures
from qbench.measure.subject import Subject
from qbench.progress import Progress
from qbench.run_options import DEFAULTS, RunOptions
from qbench.runtime import load_model
from qbench.runtime.load import set_threads
from qbench.speed.case_facts import CaseFacts, case_facts
from qbench.speed.machine_peaks import CurrentPeaks, busy_during, measure_machine_peaks
from qbench.speed.peaks import measure_bandwidth
from qbench.speed.roofline import roofline
from qbench.speed.speed import measure_speed
from qbench.speed.speed_case import SpeedCase
from quant.models import ModelConfig
from quant.present import present


def bench(
    spec: str,
    case: SpeedCase,
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
    cases: Sequence[SpeedCase],
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
              the machine as then; None: measured before and after each case
    returns   rows with spread and raw samples
    raises    InputError for impossible sizes, or more tokens than the model's context holds
    """
    start = time.perf_counter()
    threads = threads or (options.threads,)
    subject = open_subject(spec, options.with_threads(threads[0]), progress)
    open_seconds = time.perf_counter() - start
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
    known = None if machine_peaks is None else CurrentPeaks.of(machine_peaks)
    # Before the memory is watched: it takes buffers of its own.
    is_known = known is not None and known.holds(subject.threads)
    before, before_seconds = ((), 0.0) if is_known else bandwidth_before(subject.options)
    is_reset = reset_peak_rss()
    baseline = current_rss_bytes()
    load_start = time.perf_counter()
    model = load_model(subject.source, subject.options)
    load_seconds = open_seconds + time.perf_counter() - load_start
    loading_peak = peak_rss_bytes()
    for count in (each or available_cores() for each in threads):
        set_threads(count)
        if count != subject.threads:  # a bandwidth is that of so many threads
            subject = replace(subject, options=options.with_threads(count))
            before, before_seconds = bandwidth_before(subject.options)
        for case in cases:
            reset_peak_rss()
            reset_peak_device(options.device)
            facts, speed, memory, peaks_seconds = bench_case(subject, model, case, known, before, progress)
            # The kernel's high-water mark is taken from counters that lag some pages behind, so that a small model's
            # may lie below what was held before it.
            memory = replace(
                memory,
                peak_rss_bytes=max(loading_peak, memory.peak_rss_bytes or 0, baseline),
                peak_rss_since="load" if is_reset else "start",
                baseline_rss_bytes=baseline,
            )
            peaks_seconds += before_seconds
            layout = None if options.cache == DYNAMIC else options.cache
            speed = replace(speed, cache=layout, policy=None if options.policy == FULL else options.policy)
            before, before_seconds = speed.peaks.bandwidths[-1:] if speed.peaks else (), 0.0
            seconds = time.perf_counter() - start
            found = Metrics(facts=facts, speed=speed, memory=memory)
            yield replace(found, peaks_seconds=peaks_seconds, load_seconds=load_seconds, seconds=seconds)
            start, load_seconds = time.perf_counter(), 0.0  # the next case has the model loaded


def bandwidth_before(options: RunOptions) -> tuple[tuple[float, ...], float]:
    """Measured now, and the seconds that it took."""
    start = time.perf_counter()
    return (measure_bandwidth(present(options.threads), options.device),), time.perf_counter() - start


def bench_case(
    subject: Subject,
    model: Any,
    case: SpeedCase,
    known: CurrentPeaks | None,
    before: Sequence[float],
    progress: Progress | None = None,
) -> tuple[Facts, Speed, Memory, float]:
    """Facts, speed and memory of a model that is loaded, and the seconds that measuring the machine peaks took.

    known    the machine peaks of an earlier case, measured again if they no longer hold
    before   bytes a second measured right before, if any
    """
    load_before = os.getloadavg()
    figures = measure_speed(model, case, threads=subject.threads, meter=find_meter(), progress=progress)
    # before the bandwidth is measured again
    memory = Memory(peak_rss_bytes=peak_rss_bytes(), peak_device_bytes=peak_device_bytes(subject.options.device))
    start = time.perf_counter()
    if known is None or not known.holds(subject.threads) or not known.is_like(busy_during(figures)):
        known = measure_machine_peaks(subject.threads, figures, *before, device=subject.options.device)
    seconds = time.perf_counter() - start
    about = case_facts(subject, model, case)
    speed = speed_of(about, case, figures, known)
    load = {"before": list(load_before), "after": list(os.getloadavg())}
    return about.facts, replace(speed, load_average=load), memory, seconds


def speed_of(about: CaseFacts, case: SpeedCase, figures: SpeedFigures, machine_peaks: CurrentPeaks) -> Speed:
    """The figures of a case, and the bounds that they are compared with."""
    share = roofline(about.work, machine_peaks.peaks, figures)
    return Speed(
        context=case.longest,
        batch=case.batch,
        pp=case.pp,
        tg=case.tg,
        depth=case.depth,
        figures=figures,
        roofline=replace(share, bandwidths_bytes_per_s=list(machine_peaks.bandwidths)),
        peaks=machine_peaks.kept(),
        kv_bytes_per_token=about.kv_bytes_per_token,
        predicted_bytes=about.predicted_bytes,
    )
