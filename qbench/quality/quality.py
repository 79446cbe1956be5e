"""One pass over a text: perplexity of a model under each protocol, and its divergence from a reference."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import KLDReference, Quality
from qbench.progress import Progress
from qbench.quality.attention_delta import DeltaSums, Difference, difference
from qbench.quality.kld.kld import Divergence, concatenate, divergence, with_divergence
from qbench.quality.kld.llama_statistics import llama_statistics
from qbench.quality.protocols.forward import Model, Outputs, batches, scored_pieces
from qbench.quality.protocols.perplexity import perplexity_statistics, token_nll
from qbench.quality.protocols.scoring import Scoring, blocks_of
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
    # Parts of each window.
    scores: list[list[list[Any]]] = [[[] for _ in scoring.windows] for scoring in scorings]
    deltas = [DeltaSums() for _ in scorings]
    done, total, start = 0, sum(len(scoring.windows) for scoring in scorings), time.perf_counter()
    if progress:
        progress(0, total, "windows")
    for batch in batches(scorings, vocab_size):
        outputs = Outputs.of(model, batch.tokens)
        beside = None
        if reference is not None and any(kept[p] is None for uses in batch.uses for p, _ in uses):
            beside = Outputs.of(present(reference.model), batch.tokens)
        by_textbook = None if textbook is None else _one_by_one(textbook, batch.tokens)
        differences: dict[tuple[int, int], list[Difference]] = defaultdict(list)
        passes = outputs, beside, by_textbook
        for piece, parts in scored_pieces(batch, scorings, vocab_size):
            logits, of_reference, of_textbook = (each and each.logits(piece) for each in passes)  # [n, V]
            for part in parts:
                scoring, rows = scorings[part.scoring], present(logits)[part.rows]
                targets = torch.from_numpy(scoring.windows[part.window].targets[part.targets])
                kept_rows, found = kept[part.scoring], scores[part.scoring][part.window]
                if of_textbook is not None:
                    differences[part.scoring, part.window].append(difference(rows, of_textbook[part.rows], targets))
                if reference is None:
                    found.append(token_nll(rows, targets))
                elif kept_rows is None:
                    found.append(divergence(rows, present(of_reference)[part.rows], targets))
                else:
                    found.append(
                        kept_rows.compare(rows, int(scoring.starts[part.window]) + part.targets.start, targets)
                    )
                del rows
            del logits, of_reference, of_textbook  # before the next piece is computed
        for (p, _), of_window in differences.items():
            deltas[p].add_parts(of_window)
        done += sum(map(len, batch.uses))
        if progress:
            progress(done, total, "windows")
    seconds = time.perf_counter() - start
    if reference is None:
        found = [
            _without_reference(scoring, list(chain.from_iterable(part)))
            for scoring, part in zip(scorings, scores, strict=True)
        ]
    else:
        ways = zip(scorings, scores, kept, strict=True)
        found = [
            _with_reference(scoring, concatenate(list(chain.from_iterable(part))), of) for scoring, part, of in ways
        ]
    if textbook is not None:
        of = zip(found, deltas, strict=True)
        found = [replace(quality, attention_delta=delta.statistics()) for quality, delta in of]
    return [replace(quality, timed_seconds=seconds) for quality in found]


def _one_by_one(model: Model, tokens: Tensor) -> Outputs:
    """Outputs of tokens [B, T]; the scores of textbook attention of one sequence take enough memory."""
    outputs = [Outputs.of(model, one[None]) for one in tokens]
    return Outputs(torch.cat([each.rows for each in outputs]), outputs[0].head)


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
