"""One pass over a text: perplexity of a model under each protocol, and its divergence from a reference."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import KLDReference, Quality
from qbench.progress import Progress
from qbench.quality.attention_delta import DeltaSums
from qbench.quality.kld.kld import Divergence, concatenate, divergence
from qbench.quality.kld.kld_statistics import with_divergence
from qbench.quality.kld.llama_statistics import llama_statistics
from qbench.quality.protocols.blocks import blocks_of
from qbench.quality.protocols.forward import Model, batches
from qbench.quality.protocols.perplexity import perplexity_statistics, token_nll
from qbench.quality.protocols.scoring import Scoring
from quant.errors import InputError
from quant.present import present


class Kept(Protocol):
    """Reference logits of one scoring that were kept from an earlier run."""

    def compare(self, logits: Tensor, start: int, targets: Tensor) -> Divergence:
        """The model's logits [N, V] for the scoring's scored tokens from number `start` on, against the reference's."""
        ...

    def describe(self) -> KLDReference:
        """mode, k and bytes"""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference of a comparison: the same windows through the unquantized model, kept or run at the same time."""

    vocab_size: int
    model: Model | None = None  # for scorings of which nothing is kept
    kept: Sequence[Kept | None] = ()  # one a scoring


@torch.inference_mode()
def measure_quality(
    model: Model,
    scorings: Sequence[Scoring],
    vocab_size: int,
    *,
    reference: Reference | None = None,
    textbook: Model | None = None,
    progress: Progress | None = None,
) -> list[Quality]:
    """For each scoring its perplexity statistics, and with a reference also KLD statistics.

    textbook  the model with textbook attention, for `attention_delta`; None: not asked for
    `timed_seconds` of the passes of all scorings together, the comparison with the reference included.
    raises    InputError if the reference has another vocabulary
    """
    if reference is not None and reference.vocab_size != vocab_size:
        raise InputError(
            f"the model has {vocab_size} tokens and its reference {reference.vocab_size}; "
            "give the unquantized model that it was made from"
        )
    kept = reference.kept if reference and reference.kept else [None] * len(scorings)
    scores: list[list[Any]] = [[None] * len(scoring.windows) for scoring in scorings]
    deltas = [DeltaSums() for _ in scorings]
    done, total, start = 0, sum(len(scoring.windows) for scoring in scorings), time.perf_counter()
    if progress:
        progress(0, total, "windows")
    for batch in batches(scorings, vocab_size):
        logits = model(batch.tokens)  # [B, T, V]
        beside = None
        if reference is not None and any(kept[p] is None for uses in batch.uses for p, _ in uses):
            beside = present(reference.model)(batch.tokens)
        # One after the other: the scores of one sequence take enough memory.
        by_textbook = None if textbook is None else torch.cat([textbook(one[None]) for one in batch.tokens])
        for row, uses in enumerate(batch.uses):
            for p, w in uses:
                window = scorings[p].windows[w]
                scored = slice(window.first, window.first + len(window.targets))
                rows, targets = logits[row, scored], torch.from_numpy(window.targets)
                kept_rows = kept[p]
                if by_textbook is not None:
                    deltas[p].add(rows, by_textbook[row, scored], targets)
                if reference is None:
                    scores[p][w] = token_nll(rows, targets)
                elif kept_rows is None:
                    scores[p][w] = divergence(rows, present(beside)[row, scored], targets)
                else:
                    scores[p][w] = kept_rows.compare(rows, int(scorings[p].starts[w]), targets)
                done += 1
        if progress:
            progress(done, total, "windows")
    seconds = time.perf_counter() - start
    if reference is None:
        found = [_without_reference(scoring, part) for scoring, part in zip(scorings, scores, strict=True)]
    else:
        ways = zip(scorings, scores, kept, strict=True)
        found = [_with_reference(scoring, concatenate(part), of) for scoring, part, of in ways]
    if textbook is not None:
        of = zip(found, deltas, strict=True)
        found = [replace(quality, attention_delta=delta.statistics()) for quality, delta in of]
    return [replace(quality, timed_seconds=seconds) for quality in found]


def _without_reference(scoring: Scoring, nll: list[np.ndarray]) -> Quality:
    values = np.concatenate(nll)
    return replace(perplexity_statistics(values, scoring), blocks=blocks_of(scoring, {"nll": values}))


def _with_reference(scoring: Scoring, compared: Divergence, kept: Kept | None) -> Quality:
    columns = {"nll": compared.nll, "kld": compared.kld, "same_top": compared.same_top}
    quality = with_divergence(perplexity_statistics(compared.nll, scoring), compared, scoring)
    return replace(
        quality,
        explicit=quality.explicit | {"llama_perplexity"},
        kld_reference=_with_errors(kept.describe() if kept else KLDReference(mode="exact"), compared),
        llama_perplexity=llama_statistics(compared.nll, compared),
        blocks=blocks_of(scoring, columns),
    )


def _with_errors(reference: KLDReference, compared: Divergence) -> KLDReference:
    """How far the mean KLD may be from that of the whole reference logits, at most and by its standard error."""
    bound, expected = float(compared.error.mean()), float(np.sqrt(compared.variance.sum()) / len(compared.kld))
    finite = bool(np.isfinite(bound))
    return replace(reference, error_bound_nats=bound if finite else None, error_nats=expected if finite else None)
