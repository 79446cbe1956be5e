"""`bench`: the speed and memory of one model as a dictionary, from a spec to the numbers."""

import os
import time
from typing import Any

from qbench.harness.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.harness.peaks import measure_peaks
from qbench.harness.quality import Progress
from qbench.harness.roofline import Shape, roofline
from qbench.harness.speed import measure_speed
from qbench.harness.speed_case import SpeedCase
from qbench.harness.subject import open_subject

# of `predict_memory`: weights as stored and as held, keys and values, activations, and the sum of what is held
PARTS = ("weights", "resident", "kv", "workspace", "total")


def bench(
    spec: str,
    *,
    recipe: str | None = None,
    pp: int = 512,
    tg: int = 128,
    depth: int = 0,
    repetitions: int = 5,
    threads: int | None = None,
    kv: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Throughput of prefill and decode, share of the roofline, and memory predicted and measured.

    The peak is this process's own since just before the model was loaded; `baseline_rss_bytes` was there already.

    kv        keep keys and values in this format instead of the model's own
    returns   the row's keys, with spread and raw samples
    raises    InputError for impossible sizes, or more tokens than the model's context holds
    """
    from qbench.runtime import load_model
    from qbench.runtime.memory import predict_memory
    from quant.models import ModelConfig

    start = time.perf_counter()
    case = SpeedCase(pp=pp, tg=tg, depth=depth, repetitions=repetitions)
    subject = open_subject(spec, recipe, threads, progress, kv=kv)
    case.check_context(ModelConfig.of(subject.source).max_positions)
    is_reset = reset_peak_rss()
    baseline = current_rss_bytes()
    model = load_model(subject.source, threads=subject.threads)
    load_before = os.getloadavg()
    speed = measure_speed(model, model.config.vocab_size, case, progress)
    # Before the machine's own peaks are measured, which takes buffers of its own. The kernel's high-water mark is taken
    # from counters that lag some pages behind, so that a small model's may lie below what was held before it.
    peak = max(peak_rss_bytes(), baseline)
    predicted = predict_memory(subject.source, context=case.longest)
    cache = model.new_cache(batch=1, capacity=1)
    shape = Shape(
        num_layers=model.config.num_layers,
        num_heads=model.config.num_heads,
        head_dim=model.config.head_dim,
        kv_bytes_per_token=cache.bytes_per_token,
        expert_share=model.config.expert_share,
    )
    share = roofline(dict(subject.source.tensors), shape, model.impls, measure_peaks(subject.threads), case, speed)
    return {
        **subject.facts(model.impls),
        "context": case.longest,
        "batch": 1,
        "pp": pp,
        "tg": tg,
        "depth": depth,
        **speed,
        "roofline": share,
        "kv_bytes_per_token": cache.bytes_per_token,
        "peak_rss_bytes": peak,
        "peak_rss_since": "load" if is_reset else "start",
        "baseline_rss_bytes": baseline,
        "predicted_bytes": {part: predicted[f"{part}_bytes"] for part in PARTS},
        "load_average": {"before": list(load_before), "after": list(os.getloadavg())},
        "seconds": time.perf_counter() - start,
    }
