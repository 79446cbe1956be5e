"""How long a model's passes take here, found by a few short ones; for models of which no record tells it."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from qbench.calibration.forecast import OneLayer, measure_layer, total_seconds
from qbench.calibration.options import CalibrationOptions
from qbench.progress import Progress
from qbench.quality.kld.kld import divergence
from qbench.runtime import load_model
from qbench.sources import open_source
from quant.job import make_job
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.recipes import get_recipe
from quant.sizes import num_weights
from quant.source import Source, SourceView

TOKENS = 128  # a prompt long enough to keep two cores at work, short enough for a model of billions of weights
STEPS = 4


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """Seconds of loading an artifact, of a prompt's token, of that with all logits judged, and of a step of decoding.

    All from one layer between embedding and head: a token of a prompt reads the layers alone, all else every weight.

    quantize_s   recipe -> seconds of quantizing the whole; those that there was time for
    """

    load_s: float
    token_s: float
    judged_token_s: float
    step_s: float
    quantize_s: dict[str, float]


class ReadBefore(SourceView):
    """`source`, its tensors in memory: a case loads an artifact that was just written, so that the system holds it, and
    reads no random numbers made anew."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._held = {name: source.read(name) for name in source.tensors}

    def read(self, name: str) -> QTensor:
        return self._held[name]


def probe_model(
    model: str, recipes: list[str], calibration: dict[str, Any], threads: int, budget_s: float, progress: Progress
) -> dict[str, Any]:
    """The fields of ModelProbe, of the weights as they are stored.

    recipes    whose quantizing is tried on one layer, until `budget_s` seconds have passed
    """
    start = time.perf_counter()
    source = open_source(model)
    num_layers = ModelConfig.of(source).num_layers
    one = ReadBefore(OneLayer(source))
    load_start = time.perf_counter()
    loaded = load_model(one, threads=threads)
    times = {"load_s": time.perf_counter() - load_start, **probe_passes(loaded)}
    share = num_weights(source.tensors) / num_weights(one.tensors)
    times = {name: seconds * (num_layers if name == "token_s" else share) for name, seconds in times.items()}
    quantize_s: dict[str, float] = {}
    for done, recipe in enumerate(recipes):
        if time.perf_counter() - start > budget_s:
            break
        progress(done, len(recipes), f"one layer as {recipe}")
        job = make_job(source, get_recipe(recipe))
        layer = measure_layer(job, CalibrationOptions(**calibration), threads)
        quantize_s[recipe] = total_seconds(layer, num_layers, 0.0)
    return asdict(ModelProbe(**times, quantize_s=quantize_s))


@torch.inference_mode()
def probe_passes(model: Any) -> dict[str, float]:
    """token_s, judged_token_s, step_s; each after a pass that warms up."""
    num_tokens = min(TOKENS, model.config.max_positions - STEPS)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(model.config.vocab_size, size=(1, num_tokens)))
    cache = model.new_cache(batch=1, capacity=num_tokens + STEPS)
    model(tokens, cache, last_only=True)
    cache.truncate(0)
    prompt_s = _seconds(lambda: model(tokens, cache, last_only=True))
    steps_s = _seconds(lambda: [model(tokens[:, :1], cache, last_only=True) for _ in range(STEPS)])

    def judge() -> None:
        logits = model(tokens)[0, :-1]
        divergence(logits, logits, tokens[0, 1:])

    return {"token_s": prompt_s / num_tokens, "judged_token_s": _seconds(judge) / num_tokens, "step_s": steps_s / STEPS}


def _seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
