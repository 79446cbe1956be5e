"""Caches on the kernels against those on torch, which define the kept values and attention."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import calibrated_scheme, feed, is_in_torch, kernel_cache, make_qkv, torch_cache
from support.close import assert_close

from cpu_kernels.attention import multiplies_in
from cpu_kernels.attention_bound import attention_bound
from qbench.kernels.attention import LOG2_E, ROUND_QUERIES
from qbench.runtime import load_model
from qbench.runtime.attention.rope import inverse_frequencies, rotation
from qbench.runtime.caches.storage.kernel_storage import STORES, has_store
from qbench.runtime.caches.storage.kv_storage import held_tokens
from qbench.runtime.caches.storage.storages import layer_scales
from qbench.runtime.memory import predict_memory
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

CONFIG = small_config(head_dim=32)  # 2 layers, 4 heads, 2 kv heads of 32
MODEL = ModelConfig.from_hf(CONFIG)
SOFTMAX_SCALE = MODEL.head_dim**-0.5
PER_TOKEN = [name for name in STORES if name is None or not KV_FORMATS[name].residual]

pytestmark = pytest.mark.skipif(not has_store(MODEL, None), reason="the extension is not built")


def make_scheme(name: str | None) -> KVScheme | None:
    return None if name is None else calibrated_scheme(name)


def as_kept(scheme: KVScheme | None, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if scheme is None:
        return k, v
    k_scale, v_scale = layer_scales(scheme, 1)
    return scheme.format.keys.round_trip(k, k_scale), scheme.format.values.round_trip(v, v_scale)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_bytes_are_read_as_the_format_gives_them_back(name):
    """Every code and scale, bit for bit: of magnitudes from 2**-20 to 2**20, zeros, ties, and values that saturate."""
    scheme = make_scheme(name)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((2, 2, 240, 32)) * 2.0 ** rng.integers(-20, 21, (2, 2, 240, 1)))
    x = x.float()
    x[0, 0, 0] = 0
    x[0, 0, 1, 5:] = 0
    x[0, 1, 2] = torch.arange(32) / 4  # ties
    x[1, 0, 3] = torch.linspace(-3, 3, 32) ** 9
    cache = kernel_cache(MODEL, scheme, batch=2, capacity=240)
    cache.attend(1, torch.zeros(2, 4, 240, 32), x, -x, torch.arange(240))
    k, v = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32)
    cache.memories[1].store.read(cache.places.block_table, np.full(2, 240), k, v)
    expected_k, expected_v = as_kept(scheme, x, -x)
    assert_close(k, expected_k)
    assert_close(v, expected_v)


@pytest.mark.parametrize("name", ["kv-fp8-cal", "kv-fp8-e5m2", "kv-f16", "kv-bf16", "kv-int8", "kv-int4"])
def test_nan_is_kept_as_the_format_keeps_it(name):
    scheme = make_scheme(name)
    x = make_qkv(40)[1]
    x[0, 1, 17, 3] = torch.nan
    x[0, 0, 9] = -torch.nan
    cache = kernel_cache(MODEL, scheme, batch=2, capacity=40)
    cache.attend(1, torch.zeros(2, 4, 40, 32), x, x, torch.arange(40))
    k, v = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32)
    cache.memories[1].store.read(cache.places.block_table, np.full(2, 40), k, v)
    expected_k, expected_v = as_kept(scheme, x, x)
    assert_close(k, expected_k)
    assert_close(v, expected_v)


def query_factor(scheme: KVScheme | None) -> np.ndarray:
    """Factor of queries before they are rounded: [H, 1, 1], keys' scales that are given among it"""
    k_scale = None if scheme is None else layer_scales(scheme, 1)[0]
    given = np.ones(1, np.float32) if k_scale is None else k_scale.numpy().ravel()
    return (np.float32(SOFTMAX_SCALE) * LOG2_E * np.repeat(given, 4 // len(given)))[:, None, None]


@pytest.mark.parametrize("cuts", [(), (1, 2, 40), tuple(range(1, 70))], ids=["one run", "varlen", "token by token"])
@pytest.mark.parametrize("name", PER_TOKEN)
def test_attends_as_the_cache_on_torch_does(name, cuts, monkeypatch):
    """Torch is given the queries as the kernel rounds them, so that only roundings with a bound are left."""
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")  # torch's cache does not round f16 keys as tiles do
    scheme, (q, k, v) = make_scheme(name), make_qkv(70)
    got = feed(kernel_cache(MODEL, scheme, batch=2, capacity=8), q, k, v, cuts)
    kept_k, kept_v = (x.numpy() for x in as_kept(scheme, k, v))
    seen, bounds = [], []
    for start, end in pairwise([0, *cuts, 70]):
        arithmetic = multiplies_in(STORES[name][0], end - start, q.shape[1] // k.shape[1])
        rounded = ROUND_QUERIES[arithmetic](q[:, :, start:end].numpy(), query_factor(scheme)).astype(np.float32)
        given = (rounded, kept_k[:, :, :end], kept_v[:, :, :end], SOFTMAX_SCALE)
        # Torch sums in float32, too.
        bounds.append(attention_bound(*given, arithmetic=arithmetic) + attention_bound(*given))
        seen.append(torch.from_numpy(rounded))
    expected = feed(torch_cache(MODEL, scheme, batch=2), torch.cat(seen, 2), k, v, cuts)
    assert_close(got, expected, atol=np.concatenate(bounds, 2))


@pytest.mark.parametrize("cuts", [(), (1, 2, 40), tuple(range(1, 70))], ids=["one run", "varlen", "token by token"])
def test_a_window_in_one_layer_of_two(cuts):
    config = ModelConfig.from_hf(
        CONFIG
        | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 9}
        | {"layer_types": ["full_attention", "sliding_attention"]}
    )
    q, k, v = make_qkv(70)
    for layer in range(2):
        got = feed(kernel_cache(config, batch=2, capacity=8), q, k, v, cuts, layer)
        expected = feed(torch_cache(config, batch=2), q, k, v, cuts, layer)
        assert_close(got, expected, atol=70 * 2.0**-22)


@pytest.mark.parametrize("start, tokens", [(0, 20), (20, 1)], ids=["prefill", "decode"])
def test_rotates_as_torch_does(start, tokens):
    q, k, v = make_qkv(21)
    rope = rotation(inverse_frequencies(MODEL.rope, 32), torch.arange(start, start + tokens), scale=1.25)
    caches = kernel_cache(MODEL, batch=2), torch_cache(MODEL, batch=2)
    outputs = []
    for cache in caches:
        cache.attend(0, q[:, :, :start], k[:, :, :start], v[:, :, :start], torch.arange(start)) if start else None
        cache.advance(start)
        new = (x[:, :, start : start + tokens] for x in (q, k, v))
        outputs.append(cache.rope_attend(0, *new, rope, torch.arange(start, start + tokens)))
    assert_close(*outputs, atol=21 * 2.0**-20)


@pytest.mark.parametrize("name", [None, "kv-int8"])
def test_truncate_forgets_the_rest(name):
    q, k, v = make_qkv(30)
    cache = kernel_cache(MODEL, make_scheme(name), batch=2, impl="exact")  # torch's does not round keys as tiles do
    feed(cache, q, k, 7 * v, (), layer=0)
    cache.truncate(0)
    expected = feed(torch_cache(MODEL, make_scheme(name), batch=2), q, k, v, ())
    assert_close(feed(cache, q, k, v, (), layer=0), expected, atol=2.0**-12)
    with pytest.raises(ValueError, match="truncate to 31, expected 0 to 30"):
        cache.truncate(31)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_bytes_a_token(name):
    scheme = make_scheme(name)
    cache = kernel_cache(MODEL, scheme, batch=3, capacity=33)
    expected = 2 * 2 * 2 * 32 * 4 if scheme is None else 2 * scheme.format.bytes_per_token(2, 32)
    assert cache.bytes_per_token == expected
    assert cache.places.page_size == held_tokens(33) == 48
    assert cache.size_bytes == 3 * 48 * expected
    entry = {} if scheme is None else {CONFIG_KEY: scheme.config_entry()}
    predicted = predict_memory(ArraySource(CONFIG | entry, random_weights(CONFIG)), context=33, batch=3)
    assert predicted.kv_bytes == cache.size_bytes
    assert predicted.kv_bytes_per_token == cache.bytes_per_token


def test_impossible_sizes():
    with pytest.raises(InputError, match="batch 0"):
        kernel_cache(MODEL, batch=0)
    with pytest.raises(InputError, match="capacity 0"):
        kernel_cache(MODEL, capacity=0)


@pytest.mark.parametrize(
    "changes, name, in_torch",
    [
        ({}, None, False),
        ({}, "kv-fp8", False),
        ({}, "kv-int4-kc", True),
        ({}, "kv-kivi-2", False),
        ({"head_dim": 24}, None, True),
        ({"head_dim": 24}, "kv-int8", True),
        ({"head_dim": 48}, "kv-f16", False),
    ],
    ids=["f32", "fp8", "keys per channel", "residual", "odd heads", "odd heads, int8", "heads of 48, f16"],
)
def test_models_use_the_kernels_that_have_the_format(changes, name, in_torch, monkeypatch):
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")  # tiles round f16 by more than the format does
    config = small_config(**{"head_dim": 32} | changes)
    entry = {} if name is None else {CONFIG_KEY: KVScheme(KV_FORMATS[name]).config_entry()}
    source = ArraySource(config | entry, random_weights(config))
    model = load_model(source)
    assert is_in_torch(model.new_cache()) == in_torch
    tokens = torch.from_numpy(np.random.default_rng(2).integers(160, size=(2, 64)))
    reference = load_model(source, impl="reference")
    assert is_in_torch(reference.new_cache())
    got, expected = model(tokens, model.new_cache(batch=2)), model(tokens)
    # The kernels' own roundings, now and then of a key's last bit, are less than those of the format itself;
    # without a format less than 64 tokens' float32 sums.
    as_computed = load_model(ArraySource(config, random_weights(config)))(tokens)
    moved = 2**-24 * 64 * expected if name is None else expected - as_computed
    assert (got - expected).square().mean() <= moved.square().mean()
