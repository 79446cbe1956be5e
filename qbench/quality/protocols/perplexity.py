"""Negative log-likelihood of each token, and the perplexity of many."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import Quality
from qbench.quality.protocols.scoring import Scoring
from qbench.statistics.studentized import block_mean

ROWS = 1024  # rows of logits in float64 at a time: 1024 x 128k words are 1 GB, the most that a pass adds
LARGEST_LOG = 700.0  # exp of it is about 1e304; a "word" of thousands of letters can have more


def token_nll(logits: Tensor, targets: Tensor) -> np.ndarray:
    """-log softmax(logits)[target], inf where a row of logits is not finite.

    logits    [N, V] float32
    targets   [N] int64
    returns   [N] float64, nats
    """
    parts = []
    for rows, ids in zip(logits.split(ROWS), targets.split(ROWS), strict=True):
        log_probs = torch.log_softmax(rows.double(), dim=-1)  # [R, V]
        nll = -log_probs.gather(1, ids[:, None])[:, 0]
        parts.append(torch.where(rows.isfinite().all(dim=-1), nll, torch.inf))
    return torch.cat(parts).numpy()


def perplexity_statistics(nll: np.ndarray, scoring: Scoring) -> Quality:
    """Perplexity by the scoring's unit, its error and 95 % interval by a studentized bootstrap over its blocks.

    nll       [N] float64; inf marks logits that were not finite: they are counted, and since no average that leaves
              them out would be the model's, there is no perplexity (None) as soon as there is one
    """
    bad = int(np.count_nonzero(~np.isfinite(nll)))
    quality = Quality(
        protocol=scoring.protocol.describe(), num_windows=len(scoring.windows), num_tokens=len(nll), non_finite=bad
    )
    if scoring.units is not None:
        quality = replace(quality, num_words=scoring.num_words, num_bytes=scoring.num_bytes)
    if bad:
        return quality
    estimate = block_mean(scoring.block_sums(nll), scoring.block_sizes if scoring.units is None else scoring.units)
    found = estimate.exp() if max(estimate.value, estimate.high or 0) < LARGEST_LOG else None
    return replace(
        quality,
        perplexity=found and found.value,
        perplexity_error=found and found.error,
        perplexity_interval=found and found.interval,
        nll=float(nll.mean()),
        bits_per_byte=None if scoring.units is None else float(nll.sum() / np.log(2) / scoring.num_bytes),
    )
