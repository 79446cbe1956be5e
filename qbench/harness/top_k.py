"""A next-token distribution kept as its k likeliest tokens, and what can then be said of a divergence from it.

Kept of a row p over V tokens, K its k likeliest and T all others:

    tail            t = sum_T p
    tail_plogp      h = sum_T p log p
    target_log_prob log p of the true token
    ids, log_probs  of K, the likeliest first

The divergence from it to a model's q, of which everything is known, is sum_K p log(p/q) + X with X = sum_T p log(p/q):

    t log(t / s) <= X <= h - t min_T log q,    s = sum_T q

the left by the log-sum inequality (T taken for one token), the right since -log q is nowhere above its largest value
in T. `kld` is the left end, and `error` reaches to the right one. Log-probabilities of K are kept in float32, each
within 2**-24 of itself, so a term p log(p/q) is off by at most 2**-24 |log p| p (1 + |log(p/q)|) to first order; twice
that is added to `error` for the orders that follow.
"""

import numpy as np
import torch
from torch import Tensor

from qbench.harness.kld import Divergence
from qbench.harness.perplexity import ROWS

SMALLER = 20  # times than fp16 logits, 2 bytes a token of the vocabulary
STEP = 16  # entries that k is a multiple of
LEAST = 16  # below this nothing but the tail would be left; such vocabularies are small enough to be kept whole


def row_type(vocab_size: int, k: int) -> np.dtype:
    """One row: 24 bytes, and 6 or 8 an entry."""
    ids = "<u2" if vocab_size <= 1 << 16 else "<u4"
    return np.dtype(
        [
            ("tail", "<f8"),
            ("tail_plogp", "<f8"),
            ("target_log_prob", "<f8"),
            ("log_probs", "<f4", (k,)),
            ("ids", ids, (k,)),
        ]
    )


def entries(vocab_size: int) -> int:
    """The largest k whose rows are SMALLER times smaller than fp16 logits: 528 of 32,000 tokens, 1,600 of 128,256."""
    one = row_type(vocab_size, 1).itemsize - row_type(vocab_size, 0).itemsize
    room = 2 * vocab_size / SMALLER - row_type(vocab_size, 0).itemsize
    return min(vocab_size, max(LEAST, int(room / one) // STEP * STEP))


def keep(logits: Tensor, targets: Tensor, k: int) -> np.ndarray:
    """Rows of `row_type`; a row whose logits are not finite has NaN in every number.

    logits    [N, V] float32
    targets   [N] int64
    returns   [N]
    """
    kept = np.empty(len(logits), row_type(logits.shape[1], k))
    for start in range(0, len(logits), ROWS):
        rows, part = logits[start : start + ROWS], kept[start : start + ROWS]
        log_p = torch.log_softmax(rows.double(), dim=-1)  # [R, V]
        log_p = torch.where(rows.isfinite().all(dim=-1, keepdim=True), log_p, torch.nan)
        top = rows.argmax(dim=-1, keepdim=True)  # of equals the one that argmax names comes first
        ids = log_p.scatter(1, top, torch.inf).topk(k, dim=-1).indices  # [R, k]
        p = log_p.exp().scatter(1, ids, 0.0)  # zero in K
        bad = log_p[:, 0].isnan()
        part["ids"] = ids.numpy()
        part["log_probs"] = log_p.gather(1, ids).numpy()
        part["tail"] = torch.where(bad, torch.nan, p.sum(dim=-1)).numpy()
        part["tail_plogp"] = torch.where(bad, torch.nan, (p * log_p).sum(dim=-1)).numpy()
        part["target_log_prob"] = log_p.gather(1, targets[start : start + ROWS, None])[:, 0].numpy()
    return kept


def top_k_divergence(logits: Tensor, kept: np.ndarray, targets: Tensor) -> Divergence:
    """The least divergence that the kept rows allow, and how far above it the exact one may lie.

    logits    [N, V] float32 of the model
    kept      [N] rows of `row_type`
    targets   [N] int64
    """
    parts = []
    for start in range(0, len(logits), ROWS):
        rows, part = logits[start : start + ROWS], kept[start : start + ROWS]
        ids = torch.from_numpy(part["ids"].astype(np.int64))  # [R, k]
        log_p = torch.from_numpy(part["log_probs"].astype(np.float64))  # [R, k]
        tail, plogp, target = (
            torch.from_numpy(part[name].copy()) for name in ("tail", "tail_plogp", "target_log_prob")
        )
        log_q = torch.log_softmax(rows.double(), dim=-1)  # [R, V]
        finite = rows.isfinite().all(dim=-1)
        ratio = log_p - log_q.gather(1, ids)
        p = log_p.exp()
        rounding = 2 * 2.0**-24 * (p * log_p.abs() * (1 + ratio.abs())).sum(dim=-1)
        least, most = _tail(log_q, ids, tail, plogp)
        sums = ((p * ratio).sum(dim=-1) + least).clamp_min(0)
        log_q_target = log_q.gather(1, targets[start : start + ROWS, None])[:, 0]
        columns = (
            sums,
            (rows.argmax(dim=-1) == ids[:, 0]).double(),
            log_q_target.exp() - target.exp(),
            -target,
            p[:, 0],
            (most - least).clamp_min(0) + rounding,
        )
        compared = torch.where(finite & tail.isfinite(), torch.stack(columns), torch.nan)
        nll = torch.where(finite, -log_q_target, torch.inf)
        parts.append(torch.cat([nll[None], compared]))
    return Divergence(*torch.cat(parts, dim=1).numpy())


def _tail(log_q: Tensor, ids: Tensor, tail: Tensor, plogp: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the most that the tokens outside `ids` add to the divergence, [R] each; 0 where there are none."""
    if ids.shape[1] == log_q.shape[1]:
        return torch.zeros_like(tail), torch.zeros_like(tail)
    log_s = log_q.scatter(1, ids, -torch.inf).logsumexp(dim=-1)
    smallest = log_q.scatter(1, ids, torch.inf).amin(dim=-1)
    some = tail > 0  # a tail that underflowed adds nothing
    least = torch.where(some, tail * (tail.log() - log_s), 0.0)
    return least, torch.where(some, plogp - tail * smallest, 0.0)
