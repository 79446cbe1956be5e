"""What a process that does as planned really takes."""

from random import Random
from typing import Any

from qbench.measure.host.machine import available_cores
from qbench.plan.runtime import runtime_bytes, small_like
from qbench.run_options import RunOptions
from qbench.sources import open_source
from qbench.speed.timed_process import speed_process
from quant.models import ModelConfig

STEPS = 8  # tokens decoded after the prompt: what a step needs is touched once, and less than a prefill


def measured(model: str, context: int, batch: int, *, prefill: int | None = None, kv: str | None = None) -> dict:
    """Peak of a process of its own that passes prompts and decodes to `context` tokens each, and of its runtime.

    returns  peak_rss_bytes; runtime_bytes: what a process takes beyond its model, measured on a tiny one of its kind
    raises   InputError with the process's last words where it dies
    """
    threads, rng = available_cores(), Random(0)
    config = ModelConfig.of(open_source(model))
    steps = min(STEPS, context - 1)
    tokens = [[rng.randrange(config.vocab_size) for _ in range(context)] for _ in range(batch)]
    with speed_process(model, RunOptions(kv_format=kv, threads=threads)) as process:
        process.hold([[] for _ in range(batch)], context)
        process.seconds([row[: context - steps] for row in tokens], prefill or context)
        peak = process.call("memory", {})["peak_rss_bytes"]
    return {"peak_rss_bytes": peak, "runtime_bytes": runtime_bytes(threads, small_like(config))}


def compared(predicted: dict[str, Any], found: dict[str, int]) -> dict[str, Any]:
    """Both sides of a plan; `ratio` is what was predicted, and the runtime, over what was measured."""
    whole = predicted["total_bytes"] + found["runtime_bytes"]
    return {**found, "predicted_peak_bytes": whole, "ratio": whole / found["peak_rss_bytes"]}
