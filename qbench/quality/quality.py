"""One pass over a text: perplexity of a model under each protocol, and its divergence from a reference."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.progress import Progress
from qbench.quality.kld.kld import Divergence, concatenate, divergence
from qbench.quality.kld.kld_statistics import kld_statistics
from qbench.quality.kld.llama_statistics import llama_statistics
from qbench.quality.protocols.blocks import blocks_of
from qbench.quality.protocols.passes import Model, batches
from qbench.quality.protocols.perplexity import perplexity_statistics, token_nll
from qbench.quality.protocols.plan import Plan
from quant.errors import InputError


class Kept(Protocol):
    """Reference logits of one plan that were kept from an earlier run."""

    def compare(self, logits: Tensor, start: int, targets: Tensor) -> Divergence:
        """The model's logits [N, V] for the plan's scored tokens from number `start` on, against the reference's."""
        ...

    def describe(self) -> dict[str, Any]:
        """{mode, k, bytes}"""
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
) -> list[dict[str, Any]]:
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
            beside = reference.model(batch.tokens)
        for row, uses in enumerate(batch.uses):
            for p, w in uses:
                window = plans[p].windows[w]
                scored = slice(window.first, window.first + len(window.targets))
                rows, targets = logits[row, scored], torch.from_numpy(window.targets)
                if reference is None:
                    scores[p][w] = token_nll(rows, targets)
                elif kept[p] is None:
                    scores[p][w] = divergence(rows, beside[row, scored], targets)
                else:
                    scores[p][w] = kept[p].compare(rows, int(plans[p].starts[w]), targets)
                done += 1
        if progress:
            progress(done, total, "windows")
    timed = {"timed_seconds": time.perf_counter() - start}
    if reference is None:
        return [_without_reference(plan, part) | timed for plan, part in zip(plans, scores, strict=True)]
    ways = zip(plans, scores, kept, strict=True)
    return [_with_reference(plan, concatenate(part), of) | timed for plan, part, of in ways]


def _without_reference(plan: Plan, nll: list[np.ndarray]) -> dict[str, Any]:
    values = np.concatenate(nll)
    return perplexity_statistics(values, plan) | {"blocks": blocks_of(plan, {"nll": values})}


def _with_reference(plan: Plan, compared: Divergence, kept: Kept | None) -> dict[str, Any]:
    columns = {"nll": compared.nll, "kld": compared.kld, "same_top": compared.same_top}
    how = kept.describe() if kept else {"mode": "exact", "k": None, "bytes": None}
    return {
        **perplexity_statistics(compared.nll, plan),
        **kld_statistics(compared, plan),
        "kld_reference": how | _errors(compared),
        "llama_perplexity": llama_statistics(compared.nll, compared),
        "blocks": blocks_of(plan, columns),
    }


def _errors(compared: Divergence) -> dict[str, float | None]:
    """How far the mean KLD may be from that of the whole reference logits, at most and by its standard error."""
    bound, expected = float(compared.error.mean()), float(np.sqrt(compared.variance.sum()) / len(compared.kld))
    finite = np.isfinite(bound)
    return {"error_bound_nats": bound if finite else None, "error_nats": expected if finite else None}
