"""Textbook attention against a loop over every head and query in float64, for all rules."""

import numpy as np
import pytest
import torch
from support.close import assert_close

from qbench.runtime.attention.in_torch import textbook_attention
from qbench.runtime.attention.ruled_attention import alibi_slopes
from quant.models import AttentionRule

B, H, G, T, S, D, V = 2, 6, 3, 5, 11, 8, 4

RULES = {
    "plain": AttentionRule(D**-0.5),
    "window": AttentionRule(0.5, window=3),
    "capped": AttentionRule(D**-0.5, softcap=0.7),
    "alibi": AttentionRule(D**-0.5, has_alibi=True),
    "all": AttentionRule(D**-0.5, window=7, softcap=2.0, has_alibi=True),
}


def loop(q: np.ndarray, k: np.ndarray, v: np.ndarray, rule: AttentionRule) -> np.ndarray:
    out, slopes = np.zeros((B, H, T, V)), alibi_slopes(H).double().numpy()
    for b, h, t in np.ndindex(B, H, T):
        place = S - T + t
        seen = [s for s in range(place + 1) if not rule.window or place - s < rule.window]
        scores = np.array([rule.scale * q[b, h, t] @ k[b, h // (H // G), s] for s in seen])
        if rule.softcap:
            scores = rule.softcap * np.tanh(scores / rule.softcap)
        if rule.has_alibi:
            scores -= slopes[h] * (place - np.array(seen))
        weights = np.exp(scores - scores.max())
        out[b, h, t] = weights / weights.sum() @ v[b, h // (H // G), seen]
    return out


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_every_rule(name, dtype):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in ((B, H, T, D), (B, G, S, D), (B, G, S, V)))
    q, k, v = (x.to(dtype) for x in (q, k, v))
    got = textbook_attention(q, k, v, RULES[name])
    assert got.dtype == dtype
    expected = loop(*(x.double().numpy() for x in (q, k, v)), RULES[name])
    # Each score has an absolute error of eps times the sum of its D products, and moves the weights by as much.
    bound = torch.finfo(dtype).eps * (D**0.5 * float(q.abs().max() * k.abs().max()) + 4) * float(v.abs().max())
    assert_close(got, expected, atol=bound)
