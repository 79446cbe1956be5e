"""Rates of the ranks at hand, which all measure at the same time, and steps of layouts that were planned with them.

Times are medians of means over a few steps or messages: a rank that waits for another one waits through the delays of
that one, too. Messages take the link of the run, `Ranks.link`.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean, median

import numpy as np
import torch

from qbench.measure.records.kept_ranks import DeviceRates, LinkRates
from qbench.plan.cluster.hosts import MEASURED, Cluster, Rates
from qbench.plan.cluster.plan import ClusterCase, ClusterPlan, LayoutPlan
from qbench.plan.cluster.routed import Tokens
from qbench.plan.cluster.work import RankWork, Whole
from qbench.plan.offload.layer_times import counts_of
from qbench.plan.offload.tiers import WEIGHT_BYTES, product_seconds
from qbench.plan.runtime import random_rows
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime import load_model
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.layers.paths import PYTHON
from qbench.runtime.model import Model
from qbench.runtime.offload.units import units_of
from qbench.runtime.parallel import Ranks
from qbench.runtime.parallel.share_maker import sharing
from qbench.sources.open import FirstLayers
from qbench.speed.speed_worker import TimedModel
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

SMALL, LARGE = 64, 1 << 18  # values of a message: one that its latency decides, one that its bandwidth decides
MESSAGE_ROUNDS, MESSAGES, STEP_ROUNDS = 9, 8, 7
BETWEEN = 192  # rows and columns: about 0.2 ms of one core
TIMED_CONTEXT = 256  # tokens; the cost of more tokens follows from their bytes and operations
STEPS = 8
ALONE = RankLayout()


def measure_rates(ranks: Ranks, source: Source, case: ClusterCase, threads: int) -> Rates:
    """Medians over the ranks; every rank calls it."""
    device = measure_device(source, case, threads, ranks)
    link = measure_link(ranks)
    told = [
        (DeviceRates.from_json(both[0]), LinkRates.from_json(both[1]))
        for both in map(json.loads, ranks.meeting.tell("rates", json.dumps([device.to_json(), link.to_json()])))
    ]
    devices, links = zip(*told, strict=True)
    return (
        DeviceRates(**{name: median(getattr(each, name) for each in devices) for name in DEVICE_FIGURES}),
        LinkRates(**{name: median(getattr(each, name) for each in links) for name in LINK_FIGURES}, over=link.over),
    )


DEVICE_FIGURES = ("operations", "bandwidth", "layer_s", "step_s", "called_layer_s", "shared_layer_s")
LINK_FIGURES = ("latency_s", "bandwidth", "call_s")


def _meet(ranks: Ranks) -> None:
    ranks.meeting.tell("start", "")


def measure_link(ranks: Ranks) -> LinkRates:
    """From exchanges between all ranks, which are lanes of one stage meanwhile."""
    num_ranks = ranks.meeting.num_ranks
    ranks.divide(RankLayout(tp=num_ranks))
    small, large = (_exchange_s(ranks, count, ranks.add) / (num_ranks - 1) for count in (SMALL, LARGE))
    called = _exchange_s(ranks, SMALL, lambda x: ranks.gather(torch.from_numpy(x))) / (num_ranks - 1)
    per_byte = max(large - small, large * 1e-3) / (4 * (LARGE - SMALL))
    latency_s = max(small - per_byte * 4 * SMALL, small * 1e-3)
    return LinkRates(latency_s=latency_s, bandwidth=1 / per_byte, call_s=max(0.0, called - small), over=ranks.link.name)


def _exchange_s(ranks: Ranks, num_values: int, exchange: Callable[[np.ndarray], object]) -> float:
    """A product before each exchange, as in a layer: ranks that compute do not arrive at the same moment.

    The first round is left out: ranks leave a meeting milliseconds apart.
    """
    x, taken = np.zeros(num_values, np.float32), []
    weight, product = np.ones((2, BETWEEN, BETWEEN), np.float32)
    _meet(ranks)
    for _ in range((1 + MESSAGE_ROUNDS) * MESSAGES):
        np.matmul(weight, weight, out=product)
        start = time.perf_counter()
        exchange(x)
        taken.append(time.perf_counter() - start)
    rounds = [mean(taken[first : first + MESSAGES]) for first in range(MESSAGES, len(taken), MESSAGES)]
    return median(rounds)


def measure_device(source: Source, case: ClusterCase, threads: int, ranks: Ranks) -> DeviceRates:
    """Bandwidth of products of packed weights; the other figures from runs of two numbers of layers.

    Products take as many bytes of weights as a rank holds: a small part stays in the processor's caches.

    ranks    which measure the same part at the same time
    """
    config, batch = ModelConfig.of(source), case.batch
    context = min(TIMED_CONTEXT, present(case.context))
    units = units_of(source, config, "auto")
    linears = [linear for unit in units for linear in unit.linears]
    num_bytes = sum(each.size_bytes for each in linears)
    _meet(ranks)
    product_s = product_seconds(linears, batch, min(WEIGHT_BYTES, num_bytes // ranks.meeting.num_ranks))
    bandwidth = num_bytes / sum(product_s[each.format] * each.size_bytes for each in linears)
    few, many = counts_of(config, units)
    parts = [FirstLayers(source, count) for count in (few, many)]
    works = [RankWork(Whole.of(part), ALONE, 0) for part in parts]
    timed = [TimedModel(load_model(part, RunOptions(threads=threads))) for part in parts]
    called = load_model(parts[-1], RunOptions(threads=threads), path=PYTHON.name)
    layered = [called] if config.mla is not None else [called, with_shares(parts[-1], threads, ranks)]
    prompt, step = Tokens(batch, context - STEPS, 0), Tokens(batch, 1, context - STEPS)
    _meet(ranks)
    few_s, many_s, *layered_s = _seconds([*timed, *map(TimedModel, layered)], batch, context, STEPS)
    _meet(ranks)
    prefill_s = _prefill_seconds(timed[-1:], prompt)
    operations = sum(each.operations for each in (works[-1].layers(prompt), works[-1].head(prompt))) / prefill_s[-1]
    known = [(work.layers(step).num_bytes + work.head(step).num_bytes) / bandwidth for work in works]
    rest = [seconds - products for seconds, products in zip((few_s, many_s), known, strict=True)]
    layer_s = max(0.0, (rest[-1] - rest[0]) / (many - few)) if many > few else 0.0
    more_s = [layer_s + max(0.0, each - many_s) / many for each in layered_s]
    return DeviceRates(
        operations=operations,
        bandwidth=bandwidth,
        layer_s=layer_s,
        step_s=max(0.0, rest[-1] - many * layer_s),
        called_layer_s=more_s[0],
        shared_layer_s=more_s[-1],
    )


def with_shares(source: Source, threads: int, ranks: Ranks) -> DecoderModel:
    """The model as a lane of sp runs it, but as the only lane: it merges attention to one share, and sends nothing"""
    model = load_model(source, RunOptions(threads=threads))
    assert isinstance(model, Model)
    return model.caching(lambda maker: sharing(maker, Ranks(ALONE, ranks.meeting, ranks.link)))


def _seconds(timed: Sequence[TimedModel], batch: int, context: int, steps: int) -> list[float]:
    """A decode step of each model, in turns."""
    tokens = random_rows(timed[0].vocab_size, batch, context)
    for model in timed:
        model.hold([row[: context - steps] for row in tokens], context)
    last = [row[context - steps :] for row in tokens]
    taken = [[model.seconds(last, 1) / steps for model in timed] for _ in range(STEP_ROUNDS)]
    return [median(column) for column in zip(*taken, strict=True)]


def _prefill_seconds(timed: Sequence[TimedModel], prompt: Tokens) -> list[float]:
    tokens = random_rows(timed[0].vocab_size, prompt.batch, prompt.count)
    for model in timed:
        model.hold([[] for _ in tokens], prompt.count)
    taken = [[model.seconds(tokens, prompt.count) for model in timed] for _ in range(3)]
    return [median(column) for column in zip(*taken, strict=True)]


def check_layouts(ranks: Ranks, source: Source, options: RunOptions, planned: ClusterPlan) -> ClusterPlan:
    """The plan with measured steps of each layout of as many ranks, if all rates of the cluster are measured."""
    if not is_here(planned.cluster):
        return planned
    rows = [
        _checked(ranks, source, options, planned.case, row) if row.layout.num_ranks == ranks.meeting.num_ranks else row
        for row in planned.layouts
    ]
    return replace(planned, layouts=rows)


def is_here(cluster: Cluster) -> bool:
    """Whether all devices and links are the ranks at hand."""
    return {part.origin for part in (*cluster.devices.values(), *cluster.links.values())} == {MEASURED}


def _checked(ranks: Ranks, source: Source, options: RunOptions, case: ClusterCase, row: LayoutPlan) -> LayoutPlan:
    layout, context = row.layout, present(case.context)
    ranks.divide(layout)
    one = replace(options, division=str(layout))
    model = load_model(source, one)
    steps = min(STEPS, context - 1)
    (found,) = _seconds([TimedModel(model)], case.batch, context, steps)
    (of_rank_0, *_) = map(float, ranks.meeting.tell("step", str(found)))
    return replace(row, measured_s=of_rank_0, ratio=row.decode.total_s / of_rank_0)
