"""Negative log-likelihood of each token, and the perplexity of many."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import Quality
from qbench.quality.protocols.scoring import Scoring
from qbench.statistics.intervals import block_mean

# Logits in float64 at a time: 24 rows of 262,144 words or 192 of 32,768. Equal parts of a piece are then more than the
# 32 MiB from which on glibc maps each block by itself, and gives it back when it is freed.
FLOAT64_BYTES = 48 << 20
LEAST_ROWS = 8  # a single row would be summed by several threads, in another order
LARGEST_LOG = 700.0  # exp of it is about 1e304; a "word" of thousands of letters can have more


def few_rows(num_rows: int, vocab_size: int) -> list[slice]:
    """Rows of logits in parts of equal length that take FLOAT64_BYTES each in float64."""
    most = max(LEAST_ROWS, FLOAT64_BYTES // (8 * vocab_size))
    num_parts = max(1, -(-num_rows // most))
    ends = [num_rows * part // num_parts for part in range(num_parts + 1)]
    return [slice(*each) for each in pairwise(ends)]


def token_nll(logits: Tensor, targets: Tensor) -> np.ndarray:
    """-log softmax(logits)[target], inf where a row of logits is not finite.

    logits    [N, V] float32
    targets   [N] int64
    returns   [N] float64, nats
    """
    parts = [_nll_of_few(logits[part], targets[part]) for part in few_rows(len(logits), logits.shape[1])]
    return torch.cat(parts).numpy()


def _nll_of_few(rows: Tensor, targets: Tensor) -> Tensor:
    log_probs = torch.log_softmax(rows.double(), dim=-1)  # [R, V]
    nll = -log_probs.gather(1, targets[:, None])[:, 0]
    return torch.where(all_finite(log_probs), nll, torch.inf)


def all_finite(log_probs: Tensor) -> Tensor:
    """[R]: whether all logits of a row are finite; log_probs [R, V] float64, their log-softmax.

    The smallest one is -inf for a logit of -inf, and NaN for one of inf or NaN.
    """
    return log_probs.amin(dim=-1).isfinite()


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
        perplexity_interval=found and found.printed_interval(len(scoring.block_sizes)),
        nll=float(nll.mean()),
        bits_per_byte=None if scoring.units is None else float(nll.sum() / np.log(2) / scoring.num_bytes),
    )
