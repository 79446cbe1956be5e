"""Negative log-likelihood of each token, and the perplexity of many."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import Quality
from qbench.quality.protocols.scoring import Scoring
from qbench.statistics.intervals import block_mean

# Logits in float64 at a time, which stay in the caches. They are written to memory that one call allocates once: pages
# that the system hands out again for each part took most of the time of a comparison.
FLOAT64_BYTES = 4 << 20
LEAST_ROWS = 8  # a single row would be summed by several threads, in another order
LARGEST_LOG = 700.0  # exp of it is about 1e304; a "word" of thousands of letters can have more


def few_rows(num_rows: int, vocab_size: int) -> list[slice]:
    """Rows of logits in parts of equal length that take FLOAT64_BYTES each in float64, or LEAST_ROWS."""
    most = max(LEAST_ROWS, FLOAT64_BYTES // (8 * vocab_size))
    num_parts = max(1, -(-num_rows // most))
    ends = [num_rows * part // num_parts for part in range(num_parts + 1)]
    return [slice(*each) for each in pairwise(ends)]


def parts_in(logits: Tensor, num_copies: int) -> Iterator[tuple[slice, Tensor]]:
    """Few rows at a time, and uninitialized memory for copies of their logits: [num_copies, R, V] float64."""
    parts = few_rows(*logits.shape)
    space = torch.empty(num_copies, max(part.stop - part.start for part in parts), logits.shape[1], dtype=torch.float64)
    for part in parts:
        yield part, space[:, : part.stop - part.start]


def token_nll(logits: Tensor, targets: Tensor) -> np.ndarray:
    """-log softmax(logits)[target], inf where a row of logits is not finite.

    logits    [N, V] float32
    targets   [N] int64
    returns   [N] float64, nats
    """
    nll = torch.empty(len(logits), dtype=torch.float64)
    for part, (x, weight) in parts_in(logits, 2):
        lse, finite = normalizer(x.copy_(logits[part]), weight)
        nll[part] = torch.where(finite, lse - x.gather(1, targets[part, None])[:, 0], torch.inf)
    return nll.numpy()


def normalizer(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """log sum_v exp(x_v) of each row, and whether all logits of the row are finite.

    x        [R, V] float64
    weight   [R, V] float64; gets exp(x - lse + a constant of the row), whose largest value is 1
    returns  [R] float64, [R] bool
    """
    largest = x.amax(dim=-1)
    finite = largest.isfinite() & x.amin(dim=-1).isfinite()  # both are NaN if a logit is
    torch.sub(x, largest[:, None], out=weight).exp_()
    return weight.sum(dim=-1).log_().add_(largest), finite


def likeliest(logits: Tensor) -> Tensor:
    """[N] int64: the token of the largest logit of each row [N, V], the first of equals.

    NumPy takes a tenth of torch's time.
    """
    return torch.from_numpy(logits.numpy().argmax(axis=-1))


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
