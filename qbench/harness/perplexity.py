"""Negative log-likelihood of each token, and the perplexity of many."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.statistics import token_mean

ROWS = 1024  # rows of logits in float64 at a time: 1024 x 128k words are 1 GB, the most that a pass adds


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


def perplexity_statistics(nll: np.ndarray) -> dict[str, Any]:
    """Perplexity, its standard error and 95 % interval by a studentized bootstrap over windows.

    nll       [windows, tokens] float64; inf marks logits that were not finite: they are counted, and since no
              average that leaves them out would be the model's, perplexity is None as soon as there is one
    """
    bad = int(np.count_nonzero(~np.isfinite(nll)))
    result = {"num_windows": len(nll), "num_tokens": int(nll.size), "non_finite": bad}
    if bad:
        return {"perplexity": None, "perplexity_error": None, "perplexity_interval": None, "nll": None, **result}
    estimate = token_mean(nll).exp()
    return {
        "perplexity": estimate.value,
        "perplexity_error": estimate.error,
        "perplexity_interval": None if estimate.low is None else [estimate.low, estimate.high],
        "nll": float(nll.mean()),
        **result,
    }
