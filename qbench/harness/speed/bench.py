"""`bench`: the speed and memory of one model as a dictionary, from a spec to the numbers."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from qbench.harness.host.energy import find_meter
from qbench.harness.host.machine import available_cores
from qbench.harness.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.harness.speed.peaks import measure_bandwidth, peaks_of
from qbench.harness.speed.roofline import Shape, least_work, roofline
from qbench.harness.speed.speed import measure_speed
from qbench.harness.speed.speed_case import SpeedCase
from qbench.harness.subject import Subject, open_subject
from qbench.progress import Progress

# of `predict_memory`: weights as stored and as held, keys and values, activations, and the sum of what is held
PARTS = ("weights", "resident", "kv", "workspace", "total")


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
    progress: Progress | None = None,
) -> dict[str, Any]:
    """One case of `bench_cases`."""
    case = SpeedCase(pp, tg, depth, repetitions, batch, precision, budget_s)
    (row,) = bench_cases(spec, [case], recipe=recipe, threads=[threads], kv=kv, progress=progress)
    return row


def bench_cases(
    spec: str,
    cases: Sequence[SpeedCase],
    *,
    recipe: str | None = None,
    threads: Sequence[int | None] = (None,),
    kv: str | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Throughput of prefill and decode, share of the roofline, and memory predicted and measured; a row a case.

    The model is loaded once. A row's peak is this process's own: the larger of that of loading and that of the case;
    `baseline_rss_bytes` was there before either.

    threads   of each, one after the other; None: every core
    kv        keep keys and values in this format instead of the model's own
    returns   rows with spread and raw samples
    raises    InputError for impossible sizes, or more tokens than the model's context holds
    """
    from qbench.runtime import load_model
    from qbench.runtime.load import set_threads
    from quant.models import ModelConfig

    start = time.perf_counter()
    first, *_ = threads
    subject = open_subject(spec, recipe, first, progress, kv=kv)
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
    bandwidth = measure_bandwidth(subject.threads)  # before the memory is watched: it takes buffers of its own
    is_reset = reset_peak_rss()
    baseline = current_rss_bytes()
    load_start = time.perf_counter()
    model = load_model(subject.source, threads=subject.threads)
    load_seconds = time.perf_counter() - load_start
    loading_peak = peak_rss_bytes()
    for count in threads:
        set_threads(count or available_cores())
        for case in cases:
            reset_peak_rss()
            row = bench_case(replace(subject, threads=count or available_cores()), model, case, bandwidth, progress)
            # The kernel's high-water mark is taken from counters that lag some pages behind, so that a small model's
            # may lie below what was held before it.
            row["peak_rss_bytes"] = max(loading_peak, row["peak_rss_bytes"], baseline)
            row |= {"peak_rss_since": "load" if is_reset else "start", "baseline_rss_bytes": baseline}
            bandwidth = row["roofline"]["bandwidths_bytes_per_s"][-1]
            yield row | {"load_seconds": load_seconds, "seconds": time.perf_counter() - start}
            start, load_seconds = time.perf_counter(), 0.0  # the next case has the model loaded


def bench_case(
    subject: Subject, model: Any, case: SpeedCase, bandwidth: float, progress: Progress | None = None
) -> dict[str, Any]:
    """A row, of a model that is loaded; bandwidth: bytes a second measured right before."""
    load_before = os.getloadavg()
    speed = measure_speed(model, case, threads=subject.threads, meter=find_meter(), progress=progress)
    peak = peak_rss_bytes()  # before the bandwidth is measured again
    bandwidths = bandwidth, measure_bandwidth(subject.threads)
    row = bench_row(case_facts(subject, model, case), case, speed, bandwidths)
    return row | {
        "peak_rss_bytes": peak,
        "load_average": {"before": list(load_before), "after": list(os.getloadavg())},
    }


def case_facts(subject: Subject, model: Any, case: SpeedCase) -> dict[str, Any]:
    """What can be said of a model and a case without timing it, as plain JSON values.

    returns   facts: of the subject; kv_bytes_per_token; predicted_bytes by part; work: as `least_work`
    """
    from qbench.runtime.memory import predict_memory

    predicted = predict_memory(subject.source, context=case.longest, batch=case.batch)
    shape = Shape.of(model)
    return {
        "facts": subject.facts(model.impls),
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "predicted_bytes": {part: predicted[f"{part}_bytes"] for part in PARTS},
        "work": least_work(dict(subject.source.tensors), shape, model.impls, case),
    }


def bench_row(
    about: dict[str, Any], case: SpeedCase, speed: dict[str, Any], bandwidths: Sequence[float]
) -> dict[str, Any]:
    """`about` of case_facts, `speed` of speed_statistics, and the bandwidths before and after, as one row."""
    share = roofline(about["work"], peaks_of(bandwidths, about["facts"]["threads"]), speed)
    return {
        **about["facts"],
        "context": case.longest,
        "batch": case.batch,
        "pp": case.pp,
        "tg": case.tg,
        "depth": case.depth,
        **speed,
        "roofline": share | {"bandwidths_bytes_per_s": list(bandwidths)},
        "kv_bytes_per_token": about["kv_bytes_per_token"],
        "predicted_bytes": about["predicted_bytes"],
    }
