"""Measured memory of a process that runs as planned."""

from dataclasses import dataclass
from typing import NamedTuple

from qbench.measure.host.machine import available_cores
from qbench.plan.runtime import random_rows, runtime_bytes, small_like
from qbench.run.options import RunOptions
from qbench.sources import open_source
from qbench.speed.timed_process import speed_process
from quant.json_data import JsonData
from quant.models import ModelConfig

STEPS = 8  # tokens decoded after the prompt: a step touches its memory once, and needs less than a prefill


class Measured(NamedTuple):
    """peak_rss_bytes of a process; runtime_bytes: its need beyond the model, measured on a tiny one of its kind"""

    peak_rss_bytes: int
    runtime_bytes: int


@dataclass(frozen=True, slots=True)
class Compared(JsonData):
    """Both sides of a plan.

    peak_rss_bytes, runtime_bytes   as `Measured`
    predicted_peak_bytes   of the model and the runtime
    ratio                  predicted over measured
    """

    peak_rss_bytes: int
    runtime_bytes: int
    predicted_peak_bytes: int
    ratio: float


def measured(
    model: str,
    context: int,
    batch: int,
    *,
    prefill: int | None = None,
    kv_format: str | None = None,
    attention: str | None = None,
) -> Measured:
    """Peak of a process of its own that passes prompts and decodes to `context` tokens each, and of its runtime.

    raises   InputError with the process's last words if it dies
    """
    threads = available_cores()
    config = ModelConfig.of(open_source(model))
    steps = min(STEPS, context - 1)
    tokens = random_rows(config.vocab_size, batch, context)
    with speed_process(model, RunOptions(kv_format=kv_format, threads=threads, attention=attention)) as process:
        process.hold([[] for _ in range(batch)], context)
        process.seconds([row[: context - steps] for row in tokens], prefill or context)
        peak = process.call("memory", {})["peak_rss_bytes"]
    return Measured(peak, runtime_bytes(threads, small_like(config)))


def compared(predicted_bytes: int, found: Measured) -> Compared:
    """predicted_bytes: of the model alone"""
    whole = predicted_bytes + found.runtime_bytes
    return Compared(*found, whole, whole / found.peak_rss_bytes)
