"""One pass over a text: perplexity of a model under each protocol, and its divergence from a reference."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.measure.metrics import KLDReference, Quality
from qbench.progress import Progress
from qbench.quality.kld.kld import Divergence, concatenate, divergence
from qbench.quality.kld.kld_statistics import with_divergence
from qbench.quality.kld.llama_statistics import llama_statistics
from qbench.quality.protocols.blocks import blocks_of
from qbench.quality.protocols.forward import Model, batches
from qbench.quality.protocols.perplexity import perplexity_statistics, token_nll
from qbench.quality.protocols.plan import Plan
from quant.errors import InputError
from quant.present import present


class Kept(Protocol):
    """Reference logits of one plan that were kept from an earlier run."""

    def compare(self, logits: Tensor, start: int, targets: Tensor) -> Divergence:
        """The model's logits [N, V] for the plan's scored tokens from number `start` on, against the reference's."""
        ...

    def describe(self) -> KLDReference:
        """mode, k and bytes"""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """What a model is compared with: the same windows through the unquantized model, kept or run beside it."""

    vocab_size: int
    model: Model | None = None  # for plans of which nothing is kept
    kept: Sequence[Kept | None] = ()  # one a plan


@torch.inference_mode()
def measure_quality(
    model: Model,
    plans: Sequence[Plan],
    vocab_size: int,
    *,
    reference: Reference | None = None,
    progress: Progress | None = None,
) -> list[Quality]:
    """For each plan its perplexity statistics, and with a reference also KLD statistics.

    `timed_seconds` of the passes of all plans together, the comparison with the reference included.
    raises    InputError if the reference has another vocabulary
    """
    if reference is not None and reference.vocab_size != vocab_size:
        raise InputError(
            f"the model has {vocab_size} tokens and its reference {reference.vocab_size}; "
            "give the unquantized model that it was made from"
        )
    kept = reference.kept if reference and reference.kept else [None] * len(plans)
    scores: list[list[Any]] = [[None] * len(plan.windows) for plan in plans]
    done, total, start = 0, sum(len(plan.windows) for plan in plans), time.perf_counter()
    for batch in batches(plans, vocab_size):
        logits = model(batch.tokens)  # [B, T, V]
        beside = None
        if reference is not None and any(kept[p] is None for uses in batch.uses for p, _ in uses):
            beside = present(reference.model)(batch.tokens)
        for row, uses in enumerate(batch.uses):
            for p, w in uses:
                window = plans[p].windows[w]
                scored = slice(window.first, window.first + len(window.targets))
                rows, targets = logits[row, scored], torch.from_numpy(window.targets)
                kept_rows = kept[p]
                if reference is None:
                    scores[p][w] = token_nll(rows, targets)
                elif kept_rows is None:
                    scores[p][w] = divergence(rows, present(beside)[row, scored], targets)
                else:
                    scores[p][w] = kept_rows.compare(rows, int(plans[p].starts[w]), targets)
                done += 1
        if progress:
            progress(done, total, "windows")
    seconds = time.perf_counter() - start
    if reference is None:
        found = [_without_reference(plan, part) for plan, part in zip(plans, scores, strict=True)]
    else:
        ways = zip(plans, scores, kept, strict=True)
        found = [_with_reference(plan, concatenate(part), of) for plan, part, of in ways]
    return [replace(quality, timed_seconds=seconds) for quality in found]


def _without_reference(plan: Plan, nll: list[np.ndarray]) -> Quality:
    values = np.concatenate(nll)
    return replace(perplexity_statistics(values, plan), blocks=blocks_of(plan, {"nll": values}))


def _with_reference(plan: Plan, compared: Divergence, kept: Kept | None) -> Quality:
    columns = {"nll": compared.nll, "kld": compared.kld, "same_top": compared.same_top}
    quality = with_divergence(perplexity_statistics(compared.nll, plan), compared, plan)
    return replace(
        quality,
        explicit=quality.explicit | {"llama_perplexity"},
        kld_reference=_with_errors(kept.describe() if kept else KLDReference(mode="exact"), compared),
        llama_perplexity=llama_statistics(compared.nll, compared),
        blocks=blocks_of(plan, columns),
    )


def _with_errors(reference: KLDReference, compared: Divergence) -> KLDReference:
    """How far the mean KLD may be from that of the whole reference logits, at most and by its standard error."""
    bound, expected = float(compared.error.mean()), float(np.sqrt(compared.variance.sum()) / len(compared.kld))
    finite = bool(np.isfinite(bound))
    return replace(reference, error_bound_nats=bound if finite else None, error_nats=expected if finite else None)
