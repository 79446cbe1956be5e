"""Python's share of a decode step: `pytest --benchmark-only tests/qbench/runtime/test_bench_decode_step.py`.

A model of the 1B shape's sixteen layers, each 64 wide, does all that Python and its calls do and next to nothing else;
the step of the 1B shape itself moves 0.6 GB of Q4_0. extra_info of the latter holds `python_share`, the first over it.
"""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model

NUM_LAYERS, DEPTH = 16, 8
narrow_step_s: list[float] = []


def narrow_model() -> Model:
    config = small_config(num_hidden_layers=NUM_LAYERS, hidden_size=64, intermediate_size=64, vocab_size=64)
    weights = random_weights(config)
    return load_model(
        ArraySource(config, weights, {name: "q4_0" for name, weight in weights.items() if weight.ndim == 2})
    )


def wide_model() -> Model:
    return load_model(open_subject("rand:llama-1.1b", RunOptions("q4_0")).source)


@pytest.mark.parametrize("model", [narrow_model, wide_model], ids=["narrow", "1B"])
def test_decode_step(benchmark, model):
    run = model()
    cache, word = run.new_cache(capacity=DEPTH + 1), torch.zeros(1, 1, dtype=torch.int64)
    run(torch.zeros(1, DEPTH, dtype=torch.int64), cache, last_only=True)

    def step() -> None:
        cache.truncate(DEPTH)
        run(word, cache, last_only=True)

    benchmark.group = "decode step"
    benchmark.pedantic(step, rounds=100, warmup_rounds=5)
    if model is narrow_model:
        narrow_step_s.append(benchmark.stats.stats.median)
    elif narrow_step_s:
        benchmark.extra_info["python_share"] = narrow_step_s[-1] / benchmark.stats.stats.median
