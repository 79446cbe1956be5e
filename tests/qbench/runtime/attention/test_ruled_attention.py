"""Capped scores and scores that fall with the distance against the textbook, one query of one head at a time."""

import pytest
import torch
from support.close import assert_close

from qbench.runtime.attention import ruled_attention as module
from qbench.runtime.attention.ruled_attention import alibi_slopes, ruled_attention
from quant.models import AttentionRule


def attention_ref(q, k, v, rule: AttentionRule) -> torch.Tensor:
    q, k, v = (x.double() for x in (q, k, v))
    batch, num_heads, num_queries, _ = q.shape
    num_keys, group = k.shape[2], num_heads // k.shape[1]
    slopes = alibi_slopes(num_heads).double() if rule.has_alibi else torch.zeros(num_heads)
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float64)
    for b in range(batch):
        for h in range(num_heads):
            for t in range(num_queries):
                at = num_keys - num_queries + t
                keys = [s for s in range(at + 1) if not rule.window or at - s < rule.window]
                scores = rule.scale * k[b, h // group, keys] @ q[b, h, t]
                if rule.softcap:
                    scores = rule.softcap * torch.tanh(scores / rule.softcap)
                scores = scores - slopes[h] * torch.tensor([at - s for s in keys])
                out[b, h, t] = scores.softmax(0) @ v[b, h // group, keys]
    return out


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(AttentionRule(0.4, softcap=1.5), id="capped"),
        pytest.param(AttentionRule(0.4, softcap=1.5, window=5), id="capped, a window"),
        pytest.param(AttentionRule(0.25, has_alibi=True), id="alibi"),
        pytest.param(AttentionRule(0.25, window=63, has_alibi=True), id="alibi, a window"),
    ],
)
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 63), (3, 63), (63, 63), (131, 131)])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_scores_by_rule(monkeypatch, rule, queries, keys, kv_heads):
    monkeypatch.setattr(module, "QUERIES", 50)  # the longest takes three parts
    generator = torch.Generator().manual_seed(keys + queries)
    q = torch.randn(1, 6, queries, 8, generator=generator)
    k, v = torch.randn(2, 1, kv_heads, keys, 8, generator=generator)
    # sums of up to 131 terms of order 1 in float32
    assert_close(ruled_attention(q, k, v, rule), attention_ref(q, k, v, rule), atol=keys * 2**-22)


def test_slopes_of_the_paper():
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert_close(alibi_slopes(4), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
    # 12 heads: those of 8, then every other one of 16
    assert_close(alibi_slopes(12)[8:], [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5], rtol=2**-22)
