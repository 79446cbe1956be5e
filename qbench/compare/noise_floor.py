"""The noise floor: how far a model lies from itself when nothing is changed but how it is computed.

    threads   another number of them
    batch     other windows beside each one
    bf16      weights and activations of every linear rounded to bfloat16, as serving stacks compute

A smaller difference between two models says nothing of them: another machine may turn it round.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qbench.compare.kept_floor import KIND
from qbench.compare.measured import Measuring
from qbench.compare.side import Record
from qbench.harness.host.machine import available_cores
from qbench.harness.quality.evaluate import prepare, read_text
from qbench.harness.quality.plan import Plan
from qbench.harness.quality.quality import Model, Reference, measure_quality
from qbench.harness.records.record import make_record
from qbench.harness.subject import Subject, open_subject
from qbench.progress import Progress
from qbench.runtime.load import load_model, set_threads
from qbench.statistics import Estimate, block_mean, perplexity_ratio

METRICS = ("perplexity", "kld", "same_top")


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute the same model."""

    name: str
    how: str  # as people read it
    model: Model


def measure_noise_floor(spec: str, measuring: Measuring, progress: Progress | None = None) -> Record:
    """A record of kind "noise-floor".

    Its metrics hold the perplexity and blocks of the model as it runs; for each of `variants` the ratio of its
    perplexity to that, its divergence from it and the share of tokens that both rank first; and `floor`: metric -> the
    largest distance that the 95 % intervals of the variants allow.
    raises   InputError as `evaluate`
    """
    start = time.perf_counter()
    subject = open_subject(spec, None, measuring.threads, progress)
    passage = read_text(measuring.text, spec, measuring.reference)
    (plan,) = prepare(subject.source, passage, measuring.windows)
    model = load_model(subject.source, threads=subject.threads)
    as_is = _with_threads(model, subject.threads)
    (base,) = measure_quality(as_is, [plan], model.config.vocab_size, progress=progress)
    reference = Reference(model.config.vocab_size, model=as_is)
    found = {}
    for variant in _variants(subject, model):
        found[variant.name] = {"how": variant.how, **_distance(variant, plan, reference, base, progress)}
    metrics = {
        **subject.facts(model.impls),
        "protocol": plan.protocol.describe(),
        **base,
        "variants": found,
        "floor": {metric: max(variant["floor"][metric] for variant in found.values()) for metric in METRICS},
        "seconds": time.perf_counter() - start,
    }
    case = {"kind": KIND, "model": spec, "fingerprint": subject.source.fingerprint(), "threads": subject.threads}
    case |= {"isa": subject.facts({})["isa"], "device": "cpu", "protocol_hash": plan.protocol.hash}
    return make_record(case, metrics)


def _variants(subject: Subject, model: Model) -> list[Variant]:
    own = subject.threads
    other = 1 if own > 1 else max(2, available_cores())
    rounded = load_model(subject.source, impl="bf16", threads=own)
    return [
        Variant("threads", f"{other} instead of {own}", _with_threads(model, other)),
        Variant("batch", "each window computed alone, or twice where it was alone", _other_batch(model, own)),
        Variant("bf16", "linears rounded to bfloat16", _with_threads(rounded, own)),
    ]


def _with_threads(model: Model, threads: int) -> Model:
    def run(tokens: Tensor) -> Tensor:
        set_threads(threads)
        return model(tokens)

    return run


def _other_batch(model: Model, threads: int) -> Model:
    def run(tokens: Tensor) -> Tensor:
        set_threads(threads)
        if len(tokens) > 1:
            return torch.cat([model(window) for window in tokens.split(1)])
        return model(tokens.repeat(2, 1))[:1]

    return run


def _distance(
    variant: Variant, plan: Plan, reference: Reference, base: dict[str, Any], progress: Progress | None
) -> dict[str, Any]:
    """From the model as it runs: {perplexity, kld, same_top: estimates, floor: metric -> distance, blocks}."""
    (found,) = measure_quality(variant.model, [plan], reference.vocab_size, reference=reference, progress=progress)
    blocks = found["blocks"]
    estimates = {
        "perplexity": perplexity_ratio(base["blocks"], blocks),
        "kld": block_mean(blocks["kld"], blocks["tokens"]),
        "same_top": block_mean(blocks["same_top"], blocks["tokens"]),
    }
    neutral = {"perplexity": 1.0, "kld": 0.0, "same_top": 1.0}
    return {
        **{metric: described(estimate) for metric, estimate in estimates.items()},
        "floor": {metric: farthest(estimates[metric], neutral[metric]) for metric in METRICS},
        "blocks": blocks,
    }


def described(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "error": estimate.error, "low": estimate.low, "high": estimate.high}


def farthest(estimate: Estimate, neutral: float) -> float:
    """The end of the interval that lies farthest from no difference; of one block, the value."""
    ends = (estimate.value,) if estimate.low is None else (estimate.low, estimate.high)
    return max(abs(end - neutral) for end in ends)
