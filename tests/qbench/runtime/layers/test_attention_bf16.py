import pytest
import torch
import torch.nn.functional as F

from qbench.runtime.layers.attention import QUERIES, causal_attention_bf16

SHAPES = [
    pytest.param((1, 1, 1, 1, 4, 4), id="one token"),
    pytest.param((2, 4, 2, 3, 8, 8), id="two queries a key"),
    pytest.param((1, 6, 1, QUERIES + 1, 16, 16), id="one query into the second block"),
    pytest.param((2, 4, 4, 2 * QUERIES, 24, 16), id="values narrower than keys"),
]


def operands(batch, num_heads, num_kv_heads, seq_len, head_dim, value_dim):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(batch, heads, seq_len, dim, generator=generator)
        for heads, dim in ((num_heads, head_dim), (num_kv_heads, head_dim), (num_kv_heads, value_dim))
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_close_to_torchs_attention(shape):
    q, k, v = operands(*shape)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True)
    got = causal_attention_bf16(q, k, v)
    assert got.shape == exact.shape and got.dtype == torch.float32
    # Scores: three roundings of 2**-9 of magnitudes up to |q| |k|, and softmax moves by as much as they do, twice over
    # in a ratio. Weights, values and sums add three more.
    largest = (q.norm(dim=-1).amax() * k.norm(dim=-1).amax() * shape[4] ** -0.5).item()
    assert (got - exact).abs().max() <= 2**-9 * (2 * 3 * largest + 3) * v.abs().max()


def test_no_query_sees_later_tokens():
    q, k, v = operands(1, 2, 1, QUERIES + 9, 8, 8)
    before = causal_attention_bf16(q, k, v)
    k[:, :, -1], v[:, :, -1] = 50.0, -50.0
    after = causal_attention_bf16(q, k, v)
    assert torch.equal(after[:, :, :-1], before[:, :, :-1])
    assert not torch.equal(after[:, :, -1], before[:, :, -1])


def test_a_tokens_result_does_not_depend_on_its_batch():
    q, k, v = operands(3, 4, 2, 40, 8, 8)
    alone = causal_attention_bf16(q[1:2], k[1:2], v[1:2])
    assert torch.equal(causal_attention_bf16(q, k, v)[1:2], alone)
