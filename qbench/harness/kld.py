"""KL divergence of a model's next-token distribution from its reference's, token by token."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.harness.perplexity import ROWS
from qbench.statistics import token_mean

QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Per-token comparison; NaN where either side's logits are not finite."""

    kld: np.ndarray  # [N] float64, nats
    same_top: np.ndarray  # [N] float64, 1 where both rank the same token first
    delta_p: np.ndarray  # [N] float64, model's probability of the true token minus the reference's


def divergence(logits: Tensor, reference: Tensor, targets: Tensor) -> Divergence:
    """sum_v p(v) (log p(v) - log q(v)), p the reference and q the model, in float64.

    logits, reference   [N, V] float32
    targets             [N] int64
    source              the statistics that llama-perplexity --kl-divergence prints
    """
    kld, same_top, delta_p = [], [], []
    for q_rows, p_rows, ids in zip(logits.split(ROWS), reference.split(ROWS), targets.split(ROWS), strict=True):
        log_q = torch.log_softmax(q_rows.double(), dim=-1)  # [R, V]
        log_p = torch.log_softmax(p_rows.double(), dim=-1)
        good = q_rows.isfinite().all(dim=-1) & p_rows.isfinite().all(dim=-1)
        # Rounding can leave the sum a hair below the zero that it cannot pass.
        sums = torch.nn.functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1).clamp_min(0)
        kld.append(torch.where(good, sums, torch.nan))
        same_top.append(torch.where(good, (q_rows.argmax(-1) == p_rows.argmax(-1)).double(), torch.nan))
        difference = log_q.gather(1, ids[:, None]).exp() - log_p.gather(1, ids[:, None]).exp()
        delta_p.append(torch.where(good, difference[:, 0], torch.nan))
    return Divergence(*(torch.cat(part).numpy() for part in (kld, same_top, delta_p)))


def kld_statistics(kld: np.ndarray, same_top: np.ndarray, delta_p: np.ndarray) -> dict[str, Any]:
    """`kld` {mean, median, p90, p99, p999, max}, the mean's error and 95 % interval, `same_top`, `mean_delta_p`.

    each   [windows, tokens] float64; NaN marks logits that were not finite: with one there is no statistic (None)
    """
    bad = int(np.count_nonzero(~np.isfinite(kld)))
    if bad:
        nothing = dict.fromkeys(("kld", "kld_error", "kld_interval", "same_top", "mean_delta_p"))
        return {**nothing, "non_finite_kld": bad}
    mean = token_mean(kld)
    quantiles = np.quantile(kld, list(QUANTILES.values()))
    statistics = {
        "mean": mean.value,
        **dict(zip(QUANTILES, map(float, quantiles), strict=True)),
        "max": float(kld.max()),
    }
    return {
        "kld": statistics,
        "kld_error": mean.error,
        "kld_interval": None if mean.low is None else [mean.low, mean.high],
        "same_top": float(same_top.mean()),
        "mean_delta_p": float(delta_p.mean()),
        "non_finite_kld": 0,
    }
