"""KL divergence of a model's next-token distribution from its reference's, token by token."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from qbench.measure.quality_figures import KLDBin, Quality
from qbench.quality.protocols.perplexity import likeliest, normalizer, parts_in
from qbench.quality.protocols.scoring import Scoring
from qbench.statistics.intervals import block_mean


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
    columns = torch.empty(len(fields(Divergence)), len(logits), dtype=torch.float64)
    for part, space in parts_in(logits, 3):
        columns[:, part] = _divergence_of_few(logits[part], reference[part], targets[part], space)
    return Divergence(*columns.numpy())


def _divergence_of_few(q_rows: Tensor, p_rows: Tensor, ids: Tensor, space: Tensor) -> Tensor:
    """[8, R]: the columns of a Divergence; space [3, R, V] is overwritten"""
    q, p, weight = space
    lse_q, finite_q = normalizer(q.copy_(q_rows), weight)
    lse_p, finite_p = normalizer(p.copy_(p_rows), weight)
    log_q_target, log_p_target = (side.gather(1, ids[:, None])[:, 0] - lse for side, lse in ((q, lse_q), (p, lse_p)))
    largest = p.amax(dim=-1)
    ratio = p.sub_(q).sub_((lse_p - lse_q)[:, None])  # log p - log q
    # Rounding can leave the sum a hair below the zero that it cannot pass.
    sums = (ratio.mul_(weight).sum(dim=-1) * (largest - lse_p).exp()).clamp_min(0)
    columns = (
        sums,
        (likeliest(q_rows) == likeliest(p_rows)).double(),
        log_q_target.exp() - log_p_target.exp(),
        -log_p_target,
        (largest - lse_p).exp(),
        torch.zeros_like(sums),
        torch.zeros_like(sums),
    )
    compared = torch.where(finite_q & finite_p, torch.stack(columns), torch.nan)
    nll = torch.where(finite_q, -log_q_target, torch.inf)
    return torch.cat([nll[None], compared])


def concatenate(parts: list[Divergence]) -> Divergence:
    return Divergence(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Divergence)))


QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0, "p95": 0.95} | {
    "p10": 0.1,
    "p05": 0.05,
    "p01": 0.01,
    "p001": 0.001,
    "min": 0.0,
}
DELTA_QUANTILES = QUANTILES | {"p75": 0.75, "p25": 0.25}
# Null for a row whose logits are not all finite.
WITHOUT = ("kld", "kld_error", "kld_interval", "same_top", "mean_delta_p", "delta_p")
CONFIDENCE_EDGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def with_divergence(quality: Quality, compared: Divergence, scoring: Scoring) -> Quality:
    """The quality with `kld`, `delta_p` and `same_top`, their intervals and quantiles, KLD by position and confidence.

    returns   None for each statistic if a logit was not finite
    """
    bad = int(np.count_nonzero(~np.isfinite(compared.kld)))
    if bad:
        return replace(quality, non_finite_kld=bad, explicit=frozenset(WITHOUT))
    mean = block_mean(scoring.block_sums(compared.kld), scoring.block_sizes).at_least(0.0)
    return replace(
        quality,
        kld={"mean": mean.value, **_quantiles(compared.kld, QUANTILES)},
        kld_error=mean.error,
        kld_interval=mean.printed_interval(len(scoring.block_sizes), bound=0.0),
        kld_by_position=_by_bin(compared.kld, scoring.positions, _position_edges(int(scoring.positions.max()))),
        kld_by_confidence=_by_bin(compared.kld, compared.confidence, CONFIDENCE_EDGES),
        same_top=float(compared.same_top.mean()),
        mean_delta_p=float(compared.delta_p.mean()),
        delta_p={
            "mean": float(compared.delta_p.mean()),
            "rms": float(np.sqrt(np.mean(compared.delta_p**2))),
            **_quantiles(compared.delta_p, DELTA_QUANTILES),
        },
        non_finite_kld=0,
        explicit=frozenset(WITHOUT),
    )


def _quantiles(values: np.ndarray, quantiles: dict[str, float]) -> dict[str, float]:
    found = np.quantile(values, list(quantiles.values()))
    return dict(zip(quantiles, map(float, found), strict=True))


def _position_edges(last: int) -> list[int]:
    """1, 2, 4, ...: a window's first tokens have the least context, and each bin has as many tokens as all before."""
    return [1 << i for i in range(last.bit_length() + 1)]


def _by_bin(kld: np.ndarray, by: np.ndarray, edges: list[int] | tuple[float, ...]) -> tuple[KLDBin, ...]:
    """Mean KLD of the tokens with low <= by < high (the last bin holds its high end too); no empty bins."""
    bins = np.clip(np.searchsorted(edges, by, side="right") - 1, 0, len(edges) - 2)
    sums, counts = np.bincount(bins, kld, len(edges) - 1), np.bincount(bins, minlength=len(edges) - 1)
    return tuple(
        KLDBin(edges[i], edges[i + 1], float(sums[i] / counts[i]), int(counts[i])) for i in np.flatnonzero(counts)
    )
