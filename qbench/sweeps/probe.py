"""How long a model's forward passes take here, found by a few short ones; for models without a record."""

import time
from typing import Any

import numpy as np
import torch

from qbench.calibration.forecast import OneLayer, measure_layer, total_seconds
from qbench.progress import Progress
from qbench.quality.kld.kld import divergence
from qbench.quality.protocols.forward import Outputs, pieces
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.sweeps.job import ModelProbe, ProbeJob
from quant.job import make_job
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.recipes import get_recipe
from quant.sizes import num_weights
from quant.source import Source, SourceView

TOKENS = 128  # a prompt long enough to keep two cores at work, short enough for a model of billions of weights
STEPS = 4


class ReadBefore(SourceView):
    """`source`, its tensors in memory: a case loads an artifact that was just written, so that the system holds it, and
    makes no random numbers again."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._held = {name: source.read(name) for name in source.tensors}

    def read(self, name: str) -> QTensor:
        return self._held[name]


def probe_model(job: ProbeJob, progress: Progress) -> ModelProbe:
    """Probe the model with the weights as they are stored."""
    start = time.perf_counter()
    source = open_source(job.model)
    num_layers = ModelConfig.of(source).num_layers
    one = ReadBefore(OneLayer(source))
    load_start = time.perf_counter()
    loaded = load_model(one, RunOptions(threads=job.threads))
    times = {"load_s": time.perf_counter() - load_start, **probe_forward(loaded)}
    share = num_weights(source.tensors) / num_weights(one.tensors)
    times = {name: seconds * (num_layers if name == "token_s" else share) for name, seconds in times.items()}
    quantize_s: dict[str, float] = {}
    for done, recipe in enumerate(job.recipes):
        if time.perf_counter() - start > job.budget_s:
            break
        progress(done, len(job.recipes), f"one layer as {recipe}")
        making = make_job(source, get_recipe(recipe))
        layer = measure_layer(making, job.calibration or CalibrationWork(), job.threads)
        quantize_s[recipe] = total_seconds(layer, num_layers, 0.0)
    return ModelProbe(**times, quantize_s=quantize_s)


@torch.inference_mode()
def probe_forward(model: Any) -> dict[str, float]:
    """token_s, judged_token_s, step_s; each after a forward pass that warms up."""
    num_tokens = min(TOKENS, model.config.max_positions - STEPS)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(model.config.vocab_size, size=(1, num_tokens)))
    cache = model.new_cache(batch=1, capacity=num_tokens + STEPS)
    model(tokens, cache, last_only=True)
    cache.truncate(0)
    prompt_s = _seconds(lambda: model(tokens, cache, last_only=True))
    steps_s = _seconds(lambda: [model(tokens[:, :1], cache, last_only=True) for _ in range(STEPS)])

    def judge() -> None:
        outputs = Outputs.of(model, tokens)
        for piece in pieces(0, num_tokens - 1, model.config.vocab_size):
            logits = outputs.logits(piece)
            divergence(logits, logits, tokens[0, 1:][piece])

    return {"token_s": prompt_s / num_tokens, "judged_token_s": _seconds(judge) / num_tokens, "step_s": steps_s / STEPS}


def _seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
