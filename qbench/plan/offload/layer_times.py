"""`LayerTimes`: the cost of a layer beyond its products, and of a step beyond its layers, from runs of a few layers.

Products of packed weights are timed alone. Norms, attention, Python and the head are in no product, so the first layers
of the model run in memory, with two numbers of layers. The difference is the time of a layer, and the remainder that of
a step. The code is that of a run: see `resident_model`.
"""

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import median

import torch

from qbench.plan.offload.sizes import num_unusual
from qbench.plan.offload.stream_rates import PassingUnits
from qbench.plan.offload.tiers import WEIGHT_BYTES, Overheads, seconds_of
from qbench.plan.runtime import random_rows
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.cache import Cache
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.model import Model
from qbench.runtime.offload.budget import Budget
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.experts import StreamedExperts
from qbench.runtime.offload.load import OffloadedModel, expert_store
from qbench.runtime.offload.placement import split_experts
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import HEAD_UNIT, PAGE, Unit, streamable_units
from qbench.runtime.offload.weights import StreamedWeights
from qbench.sources.open import FirstLayers
from quant.models import ModelConfig
from quant.source import Source

TIMED_CONTEXT = 512  # tokens: a longer prompt would take longer than the plan; attention is linear beyond it
PROMPT_TOKENS = 256  # per forward pass
SLOWED_CONTEXT = 64  # tokens: reads take the same share of the processor from any layer
ROUNDS = 15
IMPL = "auto"
NO_LIMIT = 1 << 50  # bytes; more than a process has


class LayerTimes:
    """Two models of the first layers, timed at any batch and context.

    units   of the whole model
    path    of a file on the disk of the weights
    """

    def __init__(self, source: Source, units: Sequence[Unit], threads: int | None, path: Path) -> None:
        config = ModelConfig.of(source)
        self.units, self.counts = units, counts_of(config, units)
        options = RunOptions(threads=threads)
        self.passing = PassingUnits(path, split_experts(units)[0])
        weakref.finalize(self, self.passing.streamer.close)
        self._before = self.passing.stay
        firsts = (FirstLayers(source, count) for count in self.counts)
        self.models = [resident_model(first, options, path, self._enter) for first in firsts]
        self.vocab_size, self.num_unusual = config.vocab_size, num_unusual(config)

    def slowdown(self, batch: int) -> float:
        """Seconds by which computation is longer per byte that is read meanwhile: the readers need the processor, too.

        A step of the larger model, whose layers ask for units that stay or for units that are read. Bytes count for
        the share of the step in which the layers did not wait for them.
        """
        model, tokens = self.models[1], torch.tensor(random_rows(self.vocab_size, batch, SLOWED_CONTEXT))
        cache = model.new_cache(batch, SLOWED_CONTEXT)
        model(tokens[:, :-1], cache, last_only=True)
        cache.mark()
        quiet, busy, num_bytes = [], [], []
        for _ in range(ROUNDS):
            self._before = self.passing.stay
            self.passing.fill()
            quiet.append(_step_seconds(model, cache, tokens))
            self._before = self.passing.go_on
            _step_seconds(model, cache, tokens)  # begins with a full ring
            before = self.passing.streamer.times
            seconds = _step_seconds(model, cache, tokens)
            after = self.passing.streamer.times
            busy.append(seconds - (after.waited_s - before.waited_s))
            num_bytes.append((after.read_bytes - before.read_bytes) * busy[-1] / seconds)
        self._before = self.passing.stay
        self.passing.fill()
        return max(0.0, median(busy) - median(quiet)) / max(1.0, median(num_bytes))

    def _enter(self) -> None:
        self._before()

    def overheads(self, batch: int, context: int, product_s: Mapping[str, float]) -> Overheads:
        """product_s: seconds per byte of a product with this batch, by format"""
        timed = min(context, TIMED_CONTEXT)
        few, many = self._seconds(batch, timed)
        if context > timed:  # the same again at a quarter of the tokens gives the seconds per token
            shorter = self._seconds(batch, timed // 4)
            scale = (context - timed) / (timed - timed // 4)
            few, many = (now + scale * max(0.0, now - then) for now, then in zip((few, many), shorter, strict=True))
        layers, (some, all_) = self.counts[1] - self.counts[0], self.counts
        usual = max(0, all_ - self.num_unusual)
        of_layer = (many - few) / layers if layers else 0.0
        between = self._products(some, all_, product_s)
        layer_s = of_layer - between / layers if layers else 0.0
        head = sum(seconds_of(unit, product_s) for unit in self.units if unit.name == HEAD_UNIT)
        return Overheads(layer_s, many - self._products(0, all_, product_s) - usual * layer_s - head)

    def _products(self, first: int, end: int, product_s: Mapping[str, float]) -> float:
        units = [unit for unit in self.units if unit.layer is not None and first <= unit.layer < end]
        return sum(seconds_of(unit, product_s) for unit in units if unit.expert is None)

    def _seconds(self, batch: int, context: int) -> tuple[float, float]:
        """Medians of a step of both models, in turns."""
        tokens = torch.tensor(random_rows(self.vocab_size, batch, context))
        caches = []
        for model in self.models:
            cache = model.new_cache(batch, context)
            for part in tokens[:, :-1].split(max(1, PROMPT_TOKENS // batch), dim=1):
                model(part, cache, last_only=True)
            cache.mark()
            caches.append(cache)
        taken: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for model, cache, seconds in zip(self.models, caches, taken, strict=True):
                seconds.append(_step_seconds(model, cache, tokens))
        return median(taken[0]), median(taken[1])


def counts_of(config: ModelConfig, units: Sequence[Unit]) -> tuple[int, int]:
    """Two numbers of layers, more weights apart than a cache holds if the model has so many; the first alone of one."""
    layer_bytes = sum(unit.size_bytes for unit in units if unit.layer is not None) / config.num_layers
    step = max(1, min(config.num_layers // 2, ceil(WEIGHT_BYTES / 2 / layer_bytes)))
    few = min(max(step, num_unusual(config)), config.num_layers)
    return few, min(config.num_layers, few + step)


def _step_seconds(model: Model, cache: Cache, tokens: torch.Tensor) -> float:
    """Seconds of the last of the tokens [B, T], after which the cache goes back."""
    cache.truncate(tokens.shape[1] - 1)
    start = time.perf_counter()
    model(tokens[:, -1:], cache, last_only=True)
    return time.perf_counter() - start


def resident_model(source: Source, options: RunOptions, path: Path, before: Callable[[], None]) -> OffloadedModel:
    """A model whose weights stay in memory, run by the code for weights that come and go.

    This code looks at the process before each forward pass, asks for the head and for each chosen expert, and calls
    experts from Python. With small layers all of this takes longer than the products. Here it asks for units of one
    page each, so that no weight is in memory twice.

    path     of a file to read the pages from
    before   called before each layer
    """
    made = load_model(source, options)
    assert isinstance(made, Model)
    units = [replace(unit, size_bytes=PAGE) for unit in streamable_units(source, made.config, IMPL)]
    region = Region(units)
    streamer = Streamer(DirectFile(path), region, units, dict.fromkeys((unit.name for unit in units), 0), {})
    experts = expert_store(streamer, region, units, options.expert_placement, made.config)
    for layer, block in enumerate(made.blocks):
        block.before = before
        if experts is not None and isinstance(block.feed_forward, ExpertFeedForward):
            block.feed_forward = StreamedExperts(block.feed_forward, layer, experts)
    budget = Budget(source, replace(options, memory_bytes=NO_LIMIT), IMPL)
    model = OffloadedModel.of(made, StreamedWeights(streamer, region, units, budget, experts))
    weakref.finalize(model, streamer.close)
    return model
