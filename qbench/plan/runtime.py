"""Memory of a process beyond its model: Python, torch, kernels and their threads; prompts to measure it with."""

from random import Random

from qbench.measure.host.machine import available_cores
from qbench.run.options import RunOptions
from qbench.runtime import predict_memory
from qbench.sources import open_source
from qbench.speed.timed_process import speed_process
from quant.models import ModelConfig

SMALL = "rand:tiny"  # memory of its process beyond the predicted 5 MB is there for every model
SMALL_LATENT = "rand:tiny-mla-moe"  # latent attention and experts call on more of torch
PROMPT, STEPS = 120, 8


def small_like(config: ModelConfig) -> str:
    """The small model whose layers are of the same kind."""
    return SMALL_LATENT if config.mla else SMALL


def runtime_bytes(threads: int | None = None, small: str = SMALL) -> int:
    """Peak memory of a fresh process; processes of a sweep are forked and do not count shared pages of libraries.

    small    the model that it runs
    raises   InputError with the process's last words if it dies
    """
    with speed_process(small, RunOptions(threads=threads or available_cores())) as process:
        process.hold([[1] * PROMPT], PROMPT + STEPS)
        process.seconds([[1] * STEPS], 1)
        peak = process.call("memory", {})["peak_rss_bytes"]
    return peak - predict_memory(open_source(small), PROMPT + STEPS).total_bytes


def random_rows(vocab_size: int, batch: int, count: int) -> list[list[int]]:
    """batch rows of count token ids, always the same ones"""
    rng = Random(0)
    return [[rng.randrange(vocab_size) for _ in range(count)] for _ in range(batch)]
