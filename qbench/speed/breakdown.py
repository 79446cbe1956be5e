"""`breakdown`: decode steps of a model on the CPU, taken apart on the timeline of the thread that runs them."""

import os
import resource
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from cpu_kernels.timeline import Timeline
from qbench.measure.breakdown import KERNELS, Breakdown, PartTime
from qbench.measure.host.conditions import check_clock
from qbench.measure.host.machine import available_cores
from qbench.measure.host.placement import huge_page_share
from qbench.progress import Progress
from qbench.run.options import RunOptions
from qbench.run.work import WARM_UP_STEPS, SpeedWork, breakdown_depth
from qbench.runtime.text.sampling import Sampler, Sampling
from qbench.sources import open_source
from qbench.speed.bench import load_subject
from qbench.speed.interleaved import random_tokens
from quant.errors import InputError
from quant.models import ModelConfig

Parts = Mapping[str, float]  # part -> seconds of a step


def breakdown(
    spec: str, case: SpeedWork, options: RunOptions, *, clock: str = "wall", progress: Progress | None = None
) -> Breakdown:
    """Greedy text of case.tg tokens after case.depth random ones, each step by part.

    case     of one sequence, with 1 or more tokens to decode
    clock    wall, or cpu: the time that the calling thread is on a processor
    raises   InputError as `bench_cases`, for steps that with their warm-up exceed the context, and for processor time
             of more than one thread
    """
    check_clock(clock, options.threads or available_cores())
    limit, before = ModelConfig.of(open_source(spec)).max_positions, breakdown_depth(case.depth)
    if before + case.tg > limit:
        raise InputError(
            f"{case.tg} steps after {before} tokens, {WARM_UP_STEPS} of them for warming up, "
            f"but the model's context holds {limit}; ask for fewer"
        )
    loaded = load_subject(spec, [(options, case)], progress)
    model, load_before = loaded.model, os.getloadavg()[0]
    faults = _page_faults()
    steps = decode_steps(model, case, clock == "cpu", progress)
    faults = _page_faults() - faults
    counted, mean = faster_half(steps)
    step_s = sum(mean.values())
    parts = {name: PartTime(seconds, seconds / step_s) for name, seconds in mean.items()}
    return Breakdown(
        facts=loaded.subject.facts(model.impls, model.kernels),
        clock=clock,
        depth=case.depth,
        steps=len(steps),
        counted=counted,
        step_s=step_s,
        parts=parts,
        outside_share=1 - sum(parts[name].share for name in KERNELS),
        page_faults=faults / len(steps),
        huge_page_share=huge_page_share(),
        load=[load_before, os.getloadavg()[0]],
    )


def decode_steps(model: Any, case: SpeedWork, cpu_time: bool = False, progress: Progress | None = None) -> list[Parts]:
    """The parts of each step, after a warm-up."""
    held = random_tokens(model.config.vocab_size, case)[:, : max(1, case.depth)]
    cache = model.new_cache(capacity=breakdown_depth(case.depth) + case.tg)
    sampler, found = Sampler(Sampling()), []
    token = sampler(model(torch.from_numpy(held), cache, last_only=True)[0, -1])
    with Timeline(cpu_time) as timeline:
        for step in range(WARM_UP_STEPS + case.tg):
            logits = model(torch.tensor([[token]]), cache, last_only=True)[0, -1]
            with timeline.part("sampling"):
                token = sampler(logits)
            parts = timeline.seconds()
            if step >= WARM_UP_STEPS:
                found.append(parts)
            if progress is not None:
                progress(step + 1, WARM_UP_STEPS + case.tg, "step")
                timeline.seconds()  # leaves out the time of progress
    return found


def faster_half(steps: Sequence[Parts]) -> tuple[int, Parts]:
    """How many steps count, and the mean of each part over them."""
    some = sorted(steps, key=lambda parts: sum(parts.values()))[: -(-len(steps) // 2)]
    return len(some), {name: fmean(parts[name] for parts in some) for name in some[0]}


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
