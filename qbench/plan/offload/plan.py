"""`plan_offload`: from a model and a memory limit to the best placement, its predicted rate and its parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.measure.host.machine import available_cores
from qbench.measure.speed_figures import StepTime
from qbench.plan.offload.costs import Costs, DiskRates, Placed, ring_of
from qbench.plan.offload.layer_times import LayerTimes
from qbench.plan.offload.pipeline import pipeline_time
from qbench.plan.offload.sizes import Sizes
from qbench.plan.offload.solve import least_memory, solve
from qbench.plan.offload.tiers import DiskProbe, Overheads, Tiers, product_seconds
from qbench.plan.plan import planned_context
from qbench.plan.runtime import random_rows, runtime_bytes, small_like
from qbench.run.options import RunOptions
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.offload.budget import MARGIN_BYTES, MEBI
from qbench.runtime.offload.placement import split_experts
from qbench.runtime.offload.stream_file import stream_path
from qbench.runtime.offload.units import streamable_units
from qbench.sources import open_source
from qbench.speed.timed_process import speed_process
from quant.errors import InputError
from quant.json_data import JsonData
from quant.kv.source import KVSource
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

THROUGHPUT, LATENCY = "throughput", "latency"
MEASURED_STEPS, MEASURED_ROUNDS = 6, 3


@dataclass(frozen=True, slots=True)
class OffloadCase(JsonData):
    """A model within a memory limit.

    memory_bytes  limit of the process
    context       tokens per sequence; None: as `planned_context`
    batch         sequences
    goal          most tokens per second, or the shortest step of the whole batch
    disk          folder on the disk that is measured; None: that of the streamed weights
    """

    memory_bytes: int
    context: int | None = None
    batch: int = 1
    goal: str = THROUGHPUT
    disk: str | None = None
    kv_format: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPlan(JsonData):
    """The best placement.

    together         sequences that pass through the layers at once; the others wait for their turn
    prefill_chunk    tokens of each prompt that pass at once, as --prefill-chunk of other commands takes it
    pinned_layers, streamed_layers   units of weights, the head among them
    kv_ram_bytes     of keys and values in memory, kv_disk_bytes: on the disk
    expert_share     of the routed experts that stay in memory; None for a model without
    step             seconds of a step by part
    measured         the same of a run; measured_tok_s, ratio: its rate, and predicted over measured
    """

    model: str
    case: OffloadCase
    tiers: Tiers
    together: int
    prefill_chunk: int
    pinned_layers: int
    streamed_layers: int
    pinned_bytes: float
    ring_bytes: float
    kv_ram_bytes: float
    kv_disk_bytes: float
    fixed_bytes: float
    expert_share: float | None
    step: StepTime
    predicted_tok_s: float
    measured: StepTime | None = None
    measured_tok_s: float | None = None
    ratio: float | None = None


def plan_offload(model: str, case: OffloadCase) -> OffloadPlan:
    """The best of the splits of the batch, each with its best placement.

    raises   InputError for a limit below that of the smallest placement, which it names
    """
    source = open_source(model)
    if case.kv_format is not None:
        source = KVSource(source, case.kv_format)
    config = ModelConfig.of(source)
    context = planned_context(config, case.context, model)
    case = replace(case, context=context)
    units = streamable_units(source, config, "auto")
    predictor = MemoryPredictor(source)
    # Memory first, rates last: a limit that is too small is refused before anything is timed.
    base = runtime_bytes(case.threads, small_like(config)) + MARGIN_BYTES
    all_sizes = [Sizes.of(source, predictor, units, context, together) for together in _splits(case)]
    _check_fits(model, case, all_sizes, base)
    with DiskProbe(_disk(source, case), split_experts(units)[0]) as disk:
        disk.measure()  # and again after other measurements: see DiskProbe.rates
        layer_times = LayerTimes(source, units, case.threads or available_cores(), disk.path)
        disk.measure()
        timed = [_timed(sizes, layer_times) for sizes in all_sizes]
        disk.measure()
    plans = []
    for sizes, product_s, overheads, slowdown in timed:
        tiers = Tiers(replace(disk.rates, slowdown_s=slowdown), product_s, overheads)
        costs, placed = _solved(sizes, tiers, case.memory_bytes - base - sizes.fixed_bytes)
        if placed is not None:
            plans.append(_plan(model, case, tiers, costs, placed, sizes, base))
    return max(plans, key=lambda plan: plan.predicted_tok_s)


def _check_fits(model: str, case: OffloadCase, all_sizes: Sequence[Sizes], base: int) -> None:
    """raises InputError if no placement of any of these sizes fits; rates of the machine do not matter"""
    missing = []
    for sizes in all_sizes:
        no_times = Tiers(DiskRates(1.0), dict.fromkeys((one.format for one in sizes.linears), 0.0), Overheads(0.0, 0.0))
        costs, placed = _solved(sizes, no_times, case.memory_bytes - base - sizes.fixed_bytes)
        if placed is not None:
            return
        missing.append(least_memory(costs) - costs.memory_bytes)
    raise InputError(
        f"{case.memory_bytes // MEBI}MiB is too little for {model} at {case.context} tokens; "
        f"the smallest that works is {-(-int(case.memory_bytes + min(missing)) // MEBI)}MiB"
    )


def _timed(sizes: Sizes, layer_times: LayerTimes) -> tuple[Sizes, dict[str, float], Overheads, float]:
    """The sizes, seconds per byte of products, the rest of a step, and the slowdown by reads."""
    product_s = product_seconds(sizes.linears, sizes.together)
    overheads = layer_times.overheads(sizes.together, sizes.context, product_s)
    return sizes, product_s, overheads, layer_times.slowdown(sizes.together)


def _solved(sizes: Sizes, tiers: Tiers, memory_bytes: float) -> tuple[Costs, Placed | None]:
    """The best placement with keys and values in memory; if there is not enough for them, with some on the disk.

    Blocks of keys and values come back from the disk far slower than its bandwidth, so the disk is no equal choice.
    A cache that spills holds one sequence.
    """
    costs = sizes.costs(tiers, memory_bytes)
    placed = solve(costs)
    if placed is None and sizes.together == 1:
        costs = sizes.costs(tiers, memory_bytes, kv_spills=True)
        placed = solve(costs)
    return costs, placed


def _splits(case: OffloadCase) -> list[int]:
    """Sequences at once that are tried: the whole batch for latency, its halves, too, for throughput."""
    if case.goal == LATENCY:
        return [case.batch]
    splits = [case.batch]
    while splits[-1] > 1:
        splits.append(-(-splits[-1] // 2))
    return splits


def _disk(source: Source, case: OffloadCase) -> Path:
    """The streamed weights themselves if they are there, else a folder."""
    if case.disk is not None:
        return Path(case.disk)
    path = stream_path(source)
    if path.is_file():
        return path
    return path.parent if path.parent.is_dir() else Path.cwd()


def _plan(
    model: str, case: OffloadCase, tiers: Tiers, costs: Costs, placed: Placed, sizes: Sizes, base: int
) -> OffloadPlan:
    *weights, (kv, num_kv) = zip(costs.kinds, placed.counts, strict=True)
    step = pipeline_time(*sizes.stages(tiers, costs, placed), costs.disk)
    per_layer = sizes.kv_bytes / kv.count
    return OffloadPlan(
        model=model,
        case=case,
        tiers=tiers,
        together=sizes.together,
        prefill_chunk=sizes.chunk,
        pinned_layers=sum(count for _, count in weights),
        streamed_layers=sum(kind.count - count for kind, count in weights),
        pinned_bytes=sum(kind.held_bytes * count for kind, count in weights),
        ring_bytes=ring_of(costs, placed.counts),
        kv_ram_bytes=per_layer * num_kv,
        kv_disk_bytes=per_layer * (kv.count - num_kv),
        fixed_bytes=base + sizes.fixed_bytes,
        expert_share=placed.expert_share if costs.experts else None,
        step=step,
        predicted_tok_s=sizes.together / step.step_s,
    )


def measured_plan(planned: OffloadPlan) -> OffloadPlan:
    """The plan with the time of a step of a fresh process under the limit, which holds the context before it decodes.

    raises   InputError with the process's last words if it dies
    """
    case, together, context = planned.case, planned.together, present(planned.case.context)
    options = RunOptions(
        kv_format=case.kv_format,
        threads=case.threads,
        memory_bytes=case.memory_bytes,
        kv_ram=int(planned.kv_ram_bytes) if planned.kv_disk_bytes else None,
        prefill_chunk=planned.prefill_chunk,
    )
    steps = min(MEASURED_STEPS, context)
    weight_bytes = case.memory_bytes - planned.fixed_bytes - planned.kv_ram_bytes
    with speed_process(planned.model, options) as process:
        process.call("limit_weights", {"num_bytes": int(weight_bytes)})
        tokens = random_rows(process.vocab_size, together, context)
        process.hold([row[: context - steps] for row in tokens], context)
        last = {"tokens": [row[context - steps :] for row in tokens]}
        process.call("streamed_passes", last)  # reads the weights that stay
        passes = [
            StepTime.from_json(one)
            for _ in range(MEASURED_ROUNDS)
            for one in process.call("streamed_passes", last)[1:]  # the ring was full before the first
        ]
    measured = StepTime.median_of(passes)
    rate = together / measured.step_s
    return replace(planned, measured=measured, measured_tok_s=rate, ratio=planned.predicted_tok_s / rate)
