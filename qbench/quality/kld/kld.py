"""KL divergence of a model's next-token distribution from its reference's, token by token."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from qbench.quality.protocols.perplexity import all_finite, few_rows


@dataclass(frozen=True, slots=True)
class Divergence:
    """Per-token comparison, each [N] float64; NaN where either side's logits are not finite."""

    nll: np.ndarray  # the model's own, as perplexity.token_nll: inf, and that only where its own logits are not finite
    kld: np.ndarray  # nats
    same_top: np.ndarray  # 1 if both rank the same token first
    delta_p: np.ndarray  # model's probability of the true token minus the reference's
    base_nll: np.ndarray  # the reference's -log p of the true token
    confidence: np.ndarray  # the reference's probability of the token that it ranks first
    error: np.ndarray  # bound on |kld - exact|, nats, from parts of the reference that were not kept
    variance: np.ndarray  # of kld about the exact one, as estimated: below that bound, what to expect


def divergence(logits: Tensor, reference: Tensor, targets: Tensor) -> Divergence:
    """sum_v p(v) (log p(v) - log q(v)), p the reference and q the model, in float64.

    logits, reference   [N, V] float32
    targets             [N] int64
    source              the statistics that llama-perplexity --kl-divergence prints
    """
    parts = [
        _divergence_of_few(logits[part], reference[part], targets[part])
        for part in few_rows(len(logits), logits.shape[1])
    ]
    return Divergence(*torch.cat(parts, dim=1).numpy())


def _divergence_of_few(q_rows: Tensor, p_rows: Tensor, ids: Tensor) -> Tensor:
    """[8, R]: the columns of a Divergence"""
    log_q = torch.log_softmax(q_rows.double(), dim=-1)  # [R, V]
    log_p = torch.log_softmax(p_rows.double(), dim=-1)
    finite = all_finite(log_q)
    # Rounding can leave the sum a hair below the zero that it cannot pass.
    sums = torch.nn.functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1).clamp_min(0)
    log_q_target, log_p_target = (side.gather(1, ids[:, None])[:, 0] for side in (log_q, log_p))
    columns = (
        sums,
        (q_rows.argmax(-1) == p_rows.argmax(-1)).double(),
        log_q_target.exp() - log_p_target.exp(),
        -log_p_target,
        log_p.amax(dim=-1).exp(),
        torch.zeros_like(sums),
        torch.zeros_like(sums),
    )
    compared = torch.where(finite & all_finite(log_p), torch.stack(columns), torch.nan)
    nll = torch.where(finite, -log_q_target, torch.inf)
    return torch.cat([nll[None], compared])


def concatenate(parts: list[Divergence]) -> Divergence:
    return Divergence(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Divergence)))
