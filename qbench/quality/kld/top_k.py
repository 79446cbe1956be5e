"""A next-token distribution kept as its k likeliest tokens, and bounds on a divergence from it.

Kept of a row p over V tokens, K its k likeliest and T all others:

    tail            t = sum_T p
    tail_plogp      h = sum_T p log p
    target_log_prob log p of the true token
    ids, log_probs  of K, the likeliest first, and after them of SAMPLES tokens drawn from T by p

The divergence from it to a model's q, of which everything is known, is sum_K p log(p/q) + X with X = sum_T p log(p/q):

    t log(t / s) <= X <= h - t min_T log q,    s = sum_T q

the left by the log-sum inequality (T taken for one token), the right since -log q is nowhere above its largest value
in T. Between them X = t log(t / s) + t KL(p/t || q/s), and with d = log((p/t) / (q/s)) of a token drawn from p/t the
last is the mean of d and, as exp(-d) has the mean 1, that of exp(-d) - 1 + d: never negative, and of the second order
where d is small. `kld` takes the mean over the drawn tokens; `variance` is that of this mean, `error` reaches to the
farther end. Log-probabilities of K are kept in float32, each within 2**-24 of itself, so a term p log(p/q) is off by at
most 2**-24 |log p| p (1 + |log(p/q)|) to first order; twice that is added to `error` for the orders that follow.

source   Cover & Thomas 2006, theorem 2.7.1 (log-sum); Owen 2013, chapter 8 (strata, control variates)
"""

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from qbench.quality.kld.kld import Divergence
from qbench.quality.protocols.perplexity import likeliest, normalizer, parts_in

SMALLER = 20  # times than fp16 logits, 2 bytes a token of the vocabulary
SAMPLES = 8  # drawn of the tail: 48 bytes of a row
STEP = 4  # entries that k is a multiple of
LEAST = 8  # below this little but the tail would be left; such vocabularies are small enough to be kept whole


def row_type(vocab_size: int, k: int) -> np.dtype:
    """One row: 24 bytes, and 6 or 8 for each of k + SAMPLES tokens."""
    ids = "<u2" if vocab_size <= 1 << 16 else "<u4"
    return np.dtype(
        [
            ("tail", "<f8"),
            ("tail_plogp", "<f8"),
            ("target_log_prob", "<f8"),
            ("log_probs", "<f4", (k + SAMPLES,)),
            ("ids", ids, (k + SAMPLES,)),
        ]
    )


def entries(vocab_size: int) -> int:
    """The largest k whose rows are SMALLER times smaller than fp16 logits: 520 of 32,000 tokens, 1,592 of 128,256."""
    one = row_type(vocab_size, 1).itemsize - row_type(vocab_size, 0).itemsize
    room = 2 * vocab_size / SMALLER - row_type(vocab_size, 0).itemsize
    return min(vocab_size, max(LEAST, int(room / one) // STEP * STEP))


def keep(logits: Tensor, targets: Tensor, k: int, generator: torch.Generator | None = None) -> np.ndarray:
    """Rows of `row_type`; a row whose logits are not finite has NaN in every number.

    logits    [N, V] float32
    targets   [N] int64
    generator  draws tokens from the tails; None: a new one of seed 0
    returns   [N]
    """
    kept = np.empty(len(logits), row_type(logits.shape[1], k))
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    for some, (x, weight) in parts_in(logits, 2):
        rows, part = logits[some], kept[some]
        lse, finite = normalizer(x.copy_(rows), weight)
        log_p = torch.where(finite[:, None], x - lse[:, None], torch.nan)  # [R, V]
        top = likeliest(rows)[:, None]  # of equals the first one comes first
        ids = log_p.scatter(1, top, torch.inf).topk(k, dim=-1).indices  # [R, k]
        p = log_p.exp().scatter(1, ids, 0.0)  # zero in K
        ids = torch.cat([ids, _draw(p, generator)], dim=1)  # [R, k + SAMPLES]
        bad = log_p[:, 0].isnan()
        part["ids"] = ids.numpy()
        part["log_probs"] = log_p.gather(1, ids).numpy()
        part["tail"] = torch.where(bad, torch.nan, p.sum(dim=-1)).numpy()
        part["tail_plogp"] = torch.where(bad, torch.nan, (p * log_p).sum(dim=-1)).numpy()
        part["target_log_prob"] = log_p.gather(1, targets[some, None])[:, 0].numpy()
    return kept


def top_k_divergence(logits: Tensor, kept: np.ndarray, targets: Tensor) -> Divergence:
    """An unbiased estimate of the divergence, between the two ends that the kept rows allow.

    logits    [N, V] float32 of the model
    kept      [N] rows of `row_type`
    targets   [N] int64
    """
    columns = torch.empty(len(fields(Divergence)), len(logits), dtype=torch.float64)
    for some, (x, weight) in parts_in(logits, 2):
        rows, part = logits[some], kept[some]
        ids = torch.from_numpy(part["ids"].astype(np.int64))  # [R, k + SAMPLES]
        log_p = torch.from_numpy(part["log_probs"].astype(np.float64))
        tail, plogp, target = (
            torch.from_numpy(part[name].copy()) for name in ("tail", "tail_plogp", "target_log_prob")
        )
        lse, finite = normalizer(x.copy_(rows), weight)
        lse = lse[:, None]
        log_q_target = (x.gather(1, targets[some, None]) - lse)[:, 0]
        ratios = log_p - (x.gather(1, ids) - lse)
        ratio, drawn, log_p = ratios[:, :-SAMPLES], ratios[:, -SAMPLES:], log_p[:, :-SAMPLES]
        p = log_p.exp()
        rounding = 2 * 2.0**-24 * (p * log_p.abs() * (1 + ratio.abs())).sum(dim=-1)
        least, likely, most, variance = _tail((x, weight, lse), ids[:, :-SAMPLES], (tail, plogp), drawn)
        sums = ((p * ratio).sum(dim=-1) + likely).clamp_min(0)
        found = (
            sums,
            (likeliest(rows) == ids[:, 0]).double(),
            log_q_target.exp() - target.exp(),
            -target,
            p[:, 0],
            torch.maximum(likely - least, most - likely) + rounding,
            variance,
        )
        columns[0, some] = torch.where(finite, -log_q_target, torch.inf)
        columns[1:, some] = torch.where(finite & tail.isfinite(), torch.stack(found), torch.nan)
    return Divergence(*columns.numpy())


def _draw(p: Tensor, generator: torch.Generator) -> Tensor:
    """SAMPLES tokens by p, one from each of as many strata of equal mass: p [R, V], not normed -> ids [R, SAMPLES]."""
    cumulative = p.cumsum(dim=-1)
    total = cumulative[:, -1:]
    within = torch.rand(len(p), SAMPLES, dtype=torch.float64, generator=generator)
    at = (torch.arange(SAMPLES) + within) / SAMPLES * total
    at = torch.minimum(at, torch.nextafter(total, torch.zeros_like(total)))  # never beyond the last token that has mass
    return torch.searchsorted(cumulative, at, right=True).clamp_max(p.shape[1] - 1)


def _tail(
    model: tuple[Tensor, Tensor, Tensor], ids: Tensor, kept: tuple[Tensor, Tensor], drawn: Tensor
) -> tuple[Tensor, ...]:
    """Part of the tokens outside `ids` in the divergence: at least, likely, at most, and the variance of the likely.

    model     logits x [R, V], exp(x - the largest of the row) and log-sum-exp [R, 1]; the first two are overwritten
    kept      tail, tail_plogp
    drawn     [R, SAMPLES] log(p/q) of tokens drawn from the tail
    returns   [R] each; 0 if nothing is outside, or so little that its mass underflowed
    """
    (x, weight, lse), (tail, plogp) = model, kept
    largest = x.amax(dim=-1)
    log_s = weight.scatter_(1, ids, 0.0).sum(dim=-1).log() + largest - lse[:, 0]
    smallest = x.scatter_(1, ids, torch.inf).amin(dim=-1) - lse[:, 0]
    some = (tail > 0) & torch.isfinite(smallest)
    least = tail * (tail.log() - log_s)
    most = torch.maximum(least, plogp - tail * smallest)
    d = drawn - (tail.log() - log_s)[:, None]
    excess = torch.expm1(-d) + d
    likely = torch.minimum(least + tail * excess.mean(dim=-1), most)
    variance = tail**2 * excess.var(dim=-1) / SAMPLES
    # Where a drawn token outweighs all bounds the ends alone say how far off it may be.
    variance = torch.where(torch.isfinite(variance), torch.minimum(variance, (most - least) ** 2), (most - least) ** 2)
    return tuple(torch.where(some, value, 0.0) for value in (least, likely, most, variance))
