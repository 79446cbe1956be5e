"""Attention over caches against the textbook formula."""

import pytest
import torch
from support.architectures import small_config
from support.caches import kernel_cache, make_qkv, torch_cache
from support.close import assert_close

from qbench.runtime.attention import causal_attention as attention_module
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.caches.no_cache import NoCache
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.models import AttentionRule, ModelConfig

RULE = AttentionRule(scale=16**-0.5)

needs_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def attention_ref(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rule: AttentionRule = RULE) -> torch.Tensor:
    """One query of one head at a time, in float64."""
    batch, num_heads, num_queries, _ = q.shape
    num_keys = k.shape[2]
    group = num_heads // k.shape[1]
    out = torch.empty_like(q, dtype=torch.float64)
    for b in range(batch):
        for h in range(num_heads):
            for t in range(num_queries):
                end = num_keys - num_queries + t + 1
                seen = slice(max(0, end - rule.window) if rule.window else 0, end)
                scores = rule.scale * k[b, h // group, seen].double() @ q[b, h, t].double()
                out[b, h, t] = torch.softmax(scores, 0) @ v[b, h // group, seen].double()
    return out


def random_qkv(heads: int, kv_heads: int, queries: int, keys: int, batch: int = 2, head_dim: int = 16):
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    q = torch.randn(batch, heads, queries, head_dim, generator=generator)
    k, v = torch.randn(2, batch, kv_heads, keys, head_dim, generator=generator)
    return q, k, v


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (3, 1)], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 37), (37, 37), (5, 37), (36, 37)])
def test_causal_attention_equals_the_textbook(heads, kv_heads, queries, keys):
    q, k, v = random_qkv(heads, kv_heads, queries, keys)
    # sums of 37 terms of order 1 in float32
    assert_close(causal_attention(q, k, v, RULE), attention_ref(q, k, v), atol=37 * 2**-23)


@pytest.mark.parametrize("window", [1, 7, 36, 37, 90])
@pytest.mark.parametrize("queries", [1, 5, 36, 37])
def test_a_window_of_keys(queries, window):
    rule = AttentionRule(scale=0.4, window=window)
    q, k, v = random_qkv(6, 2, queries, 37)
    assert_close(causal_attention(q, k, v, rule), attention_ref(q, k, v, rule), atol=37 * 2**-23)


@pytest.mark.parametrize("keys, seen", [(64, 1), (65, 3)], ids=["few keys, one thread", "many keys, all threads"])
def test_threads_of_one_query(monkeypatch, keys, seen):
    """A short context is attended to on one thread, and torch has its threads again afterwards."""
    q, k, v = random_qkv(4, 2, 1, keys)
    monkeypatch.setattr(attention_module, "SMALL_KEYS", k[:, :, :64].numel())
    counts = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def spy(*args, **options):
        counts.append(torch.get_num_threads())
        return attention(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        causal_attention(q, k, v, RULE)
        assert counts == [seen]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("capacity", [1, 5, 64], ids=lambda c: f"capacity {c}")
def test_dense_cache_equals_attention_over_everything(capacity):
    config = ModelConfig.from_hf(small_config())
    q, k, v = random_qkv(4, 2, queries=20, keys=20)
    expected = attention_ref(q, k, v)
    cache = torch_cache(config, batch=2, capacity=capacity)
    start = 0
    for size in (7, 1, 1, 11):
        new = slice(start, start + size)
        cache.begin(torch.zeros(2, size, dtype=torch.int64))
        for layer in range(config.num_layers):
            out = cache.attend(layer, q[:, :, new], k[:, :, new], v[:, :, new], torch.arange(start, start + size))
            assert_close(out, expected[:, :, new], atol=20 * 2**-23)
        cache.advance(size)
        start += size
    assert cache.seq_len == 20


def test_truncate_forgets_and_continues():
    config = ModelConfig.from_hf(small_config(num_hidden_layers=1))
    q, k, v = random_qkv(4, 2, queries=6, keys=6)
    cache = torch_cache(config, batch=2)
    cache.attend(0, q, 7 * k, 7 * v, torch.arange(6))
    cache.advance(6)
    cache.truncate(0)
    assert_close(cache.attend(0, q, k, v, torch.arange(6)), NoCache(config).attend(0, q, k, v, torch.arange(6)))
    with pytest.raises(ValueError, match="truncate to 9, expected 0 to 0"):
        cache.truncate(9)


@pytest.mark.parametrize(
    ("make", "context", "capacity", "num_tokens", "capacities"),
    [
        pytest.param(torch_cache, 20, 8, 9, (16, 20), id="torch"),
        pytest.param(kernel_cache, 90, 17, 40, (64, 96), id="kernels", marks=needs_kernels),
    ],
)
def test_capacity_doubles_up_to_the_context(make, context, capacity, num_tokens, capacities):
    config = ModelConfig.from_hf(small_config(max_position_embeddings=context, head_dim=32))
    cache = make(config, batch=2, capacity=capacity)
    q, k, v = make_qkv(num_tokens)
    for expected in capacities:
        for layer in range(config.num_layers):
            cache.attend(layer, q, k, v, torch.arange(num_tokens))
        cache.advance(num_tokens)
        assert cache.places.page_size == expected
    with pytest.raises(InputError, match=f"{3 * num_tokens} tokens, but the model's context holds {context}"):
        cache.attend(0, q, k, v, torch.arange(num_tokens))


def test_bytes_per_token():
    cache = torch_cache(ModelConfig.from_hf(small_config()), batch=3, capacity=10)
    assert cache.bytes_per_token == 2 * 2 * 2 * 16 * 4  # layers, keys and values, kv heads, head_dim, float32
    assert cache.size_bytes == 30 * cache.bytes_per_token


def test_bad_arguments():
    config = ModelConfig.from_hf(small_config())
    with pytest.raises(InputError, match="batch 0"):
        torch_cache(config, batch=0)
