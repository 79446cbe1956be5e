"""The noise floor: distance of a model from itself when only the computation changes.

    threads   another number of them
    batch     other windows next to each one
    bf16      weights and activations of every linear rounded to bfloat16, as serving stacks compute

A smaller difference between two models says nothing of them: another machine may turn it round.
"""

import time
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from qbench.calibration.open_subject import open_subject
from qbench.comparison.measured import Measuring
from qbench.measure.host.machine import available_cores
from qbench.measure.quality_figures import Quality
from qbench.measure.records.kinds import NOISE_FLOOR, FloorCase, FloorMetrics, FloorVariant
from qbench.measure.records.record import Record, make_record
from qbench.measure.subject import Subject, running_isa
from qbench.progress import Progress
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.protocols.conventions import DEFAULT
from qbench.quality.quality import Reference, measure_quality
from qbench.run.choices import set_threads
from qbench.run.options import RunOptions
from qbench.runtime import Model
from qbench.runtime.load import load_model
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import block_mean
from qbench.statistics.paired import perplexity_ratio
from quant.present import present

METRICS = ("perplexity", "kld")  # that have a floor, see qbench.statistics.with_floors


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute the same model."""

    name: str
    how: str  # as people read it
    model: "Threaded"


def measure_noise_floors(spec: str, measuring: Measuring, progress: Progress | None = None) -> list[Record]:
    """Records of kind "noise-floor", one a protocol.

    The metrics of each hold the perplexity and blocks of the model as it runs; for each of `variants` the ratio of its
    perplexity to that, its divergence from it and the share of tokens that both rank first; and `floor`: metric -> the
    largest distance that the 95 % intervals of the variants allow.
    raises   InputError as `evaluate`
    """
    start = time.perf_counter()
    subject = open_subject(spec, measuring.options, progress)
    passage = read_text(measuring.text, spec, measuring.reference)
    scorings = prepare(subject.source, passage, measuring.windows, measuring.protocols or (DEFAULT,))
    model = load_model(subject.source, subject.options)
    assert isinstance(model, Model)  # on the CPU
    as_is = Threaded(model, subject.threads)
    bases = measure_quality(as_is, scorings, model.config.vocab_size, progress=progress)
    reference = Reference(model.config.vocab_size, model=as_is)
    found: list[dict[str, FloorVariant]] = [{} for _ in scorings]
    for variant in _variants(subject, model):
        theirs = measure_quality(variant.model, scorings, reference.vocab_size, reference=reference, progress=progress)
        for of_scoring, base, its in zip(found, bases, theirs, strict=True):
            of_scoring[variant.name] = _distance(variant.how, base, its)
    facts, seconds = subject.facts(model.impls), time.perf_counter() - start
    records = []
    for scoring, base, variants in zip(scorings, bases, found, strict=True):
        protocol = scoring.protocol.of(measuring.options.compute)
        floor = {metric: max(variant.distance(metric) for variant in variants.values()) for metric in METRICS}
        quality = replace(base, protocol=protocol.describe())
        metrics = FloorMetrics(facts=facts, quality=quality, variants=variants, floor=floor, seconds=seconds)
        records.append(make_record(case_of_floor(subject, protocol.hash), metrics))
    return records


def case_of_floor(subject: Subject, protocol_hash: str) -> FloorCase:
    return FloorCase(
        kind=NOISE_FLOOR,
        model=subject.spec,
        fingerprint=subject.source.fingerprint(),
        threads=subject.threads,
        isa=running_isa(),
        device="cpu",
        protocol_hash=protocol_hash,
    )


def _variants(subject: Subject, model: Model) -> list[Variant]:
    own, other = subject.threads, other_threads(subject.threads)
    rounded = load_model(subject.source, RunOptions(threads=own), impl="bf16")
    assert isinstance(rounded, Model)
    return [
        Variant("threads", f"{other} instead of {own}", Threaded(model, other)),
        Variant("batch", "each window computed alone, or twice where it was alone", OtherBatch(model, own)),
        Variant("bf16", "linears rounded to bfloat16", Threaded(rounded, own)),
    ]


def other_threads(own: int) -> int:
    return 1 if own > 1 else max(2, available_cores())


@dataclass(frozen=True, slots=True)
class Threaded:
    """A model with this number of threads, whichever the process has meanwhile."""

    model: Model
    threads: int

    @property
    def has_separate_head(self) -> bool:
        return self.model.has_separate_head

    def without_head(self) -> Self:
        return replace(self, model=self.model.without_head())

    def logits(self, x: Tensor) -> Tensor:
        set_threads(self.threads)
        return self.model.logits(x)

    def __call__(self, tokens: Tensor) -> Tensor:
        set_threads(self.threads)
        return self.model(tokens)


class OtherBatch(Threaded):
    """Windows that pass together pass alone, and one that passes alone twice at once."""

    def __call__(self, tokens: Tensor) -> Tensor:
        run = super().__call__
        if len(tokens) > 1:
            return torch.cat([run(window) for window in tokens.split(1)])
        return run(tokens.repeat(2, 1))[:1]


def _distance(how: str, base: Quality, found: Quality) -> FloorVariant:
    """From the model as it runs: estimates, their distances from no difference, and the blocks."""
    before, after = present(base.blocks), present(found.blocks)
    perplexity, tokens = perplexity_ratio(before, after), present(after.tokens)
    kld = block_mean(present(after.kld), tokens).at_least(0.0)
    return FloorVariant(
        how=how,
        perplexity=described(perplexity),
        kld=described(kld),
        same_top=described(block_mean(present(after.same_top), tokens)),
        floor={"perplexity": farthest(perplexity, 1.0), "kld": farthest(kld, 0.0)},
        blocks=found.blocks,
    )


def described(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "error": estimate.error, "low": estimate.low, "high": estimate.high}


def farthest(estimate: Estimate, neutral: float) -> float:
    """The end of the interval that is farthest from no difference; for one block, the value."""
    ends = estimate.interval or [estimate.value]
    return max(abs(end - neutral) for end in ends)
