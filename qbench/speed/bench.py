"""`bench`: the speed and memory of one model as a dictionary, from a spec to the numbers."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qbench.cache_kinds import DYNAMIC
from qbench.calibration.open_subject import open_subject
from qbench.devices import CPU
from qbench.measure.host.device_memory import peak_device_bytes, reset_peak_device
from qbench.measure.host.energy import find_meter
from qbench.measure.host.machine import available_cores
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.measure.subject import Subject
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.runtime import load_model
from qbench.runtime.load import set_threads
from qbench.speed.case_facts import case_facts
from qbench.speed.ceilings import Ceilings, busy_during, measure_ceilings
from qbench.speed.peaks import measure_bandwidth
from qbench.speed.roofline import roofline
from qbench.speed.speed import measure_speed
from qbench.speed.speed_case import SpeedCase
from quant.models import ModelConfig


def bench(
    spec: str,
    *,
    recipe: str | None = None,
    pp: int = 512,
    tg: int = 128,
    depth: int = 0,
    batch: int = 1,
    repetitions: int = 5,
    precision: float | None = None,
    budget_s: float | None = None,
    threads: int | None = None,
    kv: str | None = None,
    cache_kind: str = DYNAMIC,
    products: str = AUTO,
    device: str = CPU,
    ceilings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """One case of `bench_cases`."""
    case = SpeedCase(pp, tg, depth, repetitions, batch, precision, budget_s)
    how = {"recipe": recipe, "threads": [threads], "kv": kv, "cache_kind": cache_kind, "products": products}
    how["device"] = device
    (row,) = bench_cases(spec, [case], ceilings=ceilings, progress=progress, **how)
    return row


def bench_cases(
    spec: str,
    cases: Sequence[SpeedCase],
    *,
    recipe: str | None = None,
    threads: Sequence[int | None] = (None,),
    kv: str | None = None,
    cache_kind: str = DYNAMIC,
    products: str = AUTO,
    device: str = CPU,
    ceilings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Throughput of prefill and decode, share of the roofline, and memory predicted and measured; a row a case.

    The model is loaded once. A row's peak is this process's own: the larger of that of loading and that of the case;
    `baseline_rss_bytes` was there before either.

    threads   of each, one after the other; None: every core
    kv        keep keys and values in this format instead of the model's own
    cache_kind  of the cache, as qbench.cache_kinds has it; named in the row where it is another than dynamic
    products  how the model multiplies, one of qbench.products
    device    where it runs, one of qbench.devices; of a GPU the row has its memory's peak, too
    ceilings  of the machine, from another row's `ceilings`: taken while they are young, and others leave as much of
              the machine as then; None: measured before and after each case
    returns   rows with spread and raw samples
    raises    InputError for impossible sizes, or more tokens than the model's context holds
    """
    start = time.perf_counter()
    first, *_ = threads
    subject = open_subject(spec, recipe, first, progress, kv=kv, products=products, device=device)
    open_seconds = time.perf_counter() - start
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
    known = None if ceilings is None else Ceilings.of(ceilings)
    # Before the memory is watched: it takes buffers of its own.
    is_known = known is not None and known.holds(subject.threads)
    before, before_seconds = ((), 0.0) if is_known else bandwidth_before(subject.threads, device)
    is_reset = reset_peak_rss()
    baseline = current_rss_bytes()
    load_start = time.perf_counter()
    how = {"products": products, "kind": cache_kind, "threads": subject.threads, "device": device}
    model = load_model(subject.source, **how)
    load_seconds = open_seconds + time.perf_counter() - load_start
    loading_peak = peak_rss_bytes()
    for count in (each or available_cores() for each in threads):
        set_threads(count)
        if count != subject.threads:  # a bandwidth is that of so many threads
            subject = replace(subject, threads=count)
            before, before_seconds = bandwidth_before(count, device)
        for case in cases:
            reset_peak_rss()
            reset_peak_device(device)
            row = bench_case(subject, model, case, known, before, progress)
            # The kernel's high-water mark is taken from counters that lag some pages behind, so that a small model's
            # may lie below what was held before it.
            row["peak_rss_bytes"] = max(loading_peak, row["peak_rss_bytes"], baseline)
            row |= {"peak_rss_since": "load" if is_reset else "start", "baseline_rss_bytes": baseline}
            row |= {"cache_kind": cache_kind} if cache_kind != DYNAMIC else {}
            row["ceilings_seconds"] += before_seconds
            before, before_seconds = row["ceilings"]["bandwidths"][-1:], 0.0
            yield row | {"load_seconds": load_seconds, "seconds": time.perf_counter() - start}
            start, load_seconds = time.perf_counter(), 0.0  # the next case has the model loaded


def bandwidth_before(threads: int, device: str) -> tuple[tuple[float, ...], float]:
    """Measured now, and the seconds that it took."""
    start = time.perf_counter()
    return (measure_bandwidth(threads, device),), time.perf_counter() - start


def bench_case(
    subject: Subject,
    model: Any,
    case: SpeedCase,
    known: Ceilings | None,
    before: Sequence[float],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """A row, of a model that is loaded.

    known    the ceilings of an earlier case, measured again where they no longer hold
    before   bytes a second measured right before, if any
    """
    load_before = os.getloadavg()
    speed = measure_speed(model, case, threads=subject.threads, meter=find_meter(), progress=progress)
    # before the bandwidth is measured again
    peaks = {"peak_rss_bytes": peak_rss_bytes()} | peak_device_bytes(subject.device)
    ceilings_start = time.perf_counter()
    if known is None or not known.holds(subject.threads) or not known.is_like(busy_during(speed)):
        known = measure_ceilings(subject.threads, speed, *before, device=subject.device)
    ceilings_seconds = time.perf_counter() - ceilings_start
    row = bench_row(case_facts(subject, model, case), case, speed, known)
    return row | {
        "ceilings_seconds": ceilings_seconds,
        **peaks,
        "load_average": {"before": list(load_before), "after": list(os.getloadavg())},
    }


def bench_row(about: dict[str, Any], case: SpeedCase, speed: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """`about` of case_facts and `speed` of speed_statistics as one row."""
    share = roofline(about["work"], ceilings.peaks, speed)
    return {
        **about["facts"],
        "context": case.longest,
        "batch": case.batch,
        "pp": case.pp,
        "tg": case.tg,
        "depth": case.depth,
        **speed,
        "roofline": share | {"bandwidths_bytes_per_s": list(ceilings.bandwidths)},
        "ceilings": ceilings.told(),
        "kv_bytes_per_token": about["kv_bytes_per_token"],
        "predicted_bytes": about["predicted_bytes"],
    }
