"""Caches of quantized formats against attention over decoded keys and values."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import calibrated_scheme, feed, is_in_torch, make_qkv, torch_cache
from support.close import assert_close

from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.storage.storages import layer_scales
from qbench.runtime.memory import predict_memory
from quant.errors import InputError
from quant.kv import KV_FORMATS
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

CONFIG = small_config(head_dim=32)  # 2 layers, 4 heads, 2 kv heads of 32
MODEL = ModelConfig.from_hf(CONFIG)
PER_TOKEN = [name for name, fmt in KV_FORMATS.items() if fmt.keys.token_group == 1]
NO_RESIDUAL = [name for name, fmt in KV_FORMATS.items() if not fmt.residual]


@pytest.mark.parametrize("cuts", [(), (1, 2, 40), tuple(range(1, 70))], ids=["one run", "varlen", "token by token"])
@pytest.mark.parametrize("name", PER_TOKEN)
def test_attention_reads_the_decoded_values(name, cuts):
    scheme, (q, k, v) = calibrated_scheme(name), make_qkv(70)
    got = feed(torch_cache(MODEL, scheme, batch=2, capacity=8), q, k, v, cuts)
    assert_close(got, NoCache(MODEL, scheme=scheme).attend(1, q, k, v, torch.arange(70)), atol=1e-5)
    k_scale, v_scale = layer_scales(scheme, 1)
    kept = scheme.format.keys.round_trip(k, k_scale), scheme.format.values.round_trip(v, v_scale)
    assert_close(got, causal_attention(q, *kept, MODEL.attention_rule(1)), atol=1e-5)


class Unread(ArraySource):
    """Its weights may not be read."""

    def read(self, name):
        raise AssertionError(f"{name} was read")


@pytest.mark.parametrize("layout", ["none", "dynamic"])
@pytest.mark.parametrize("name", ["kv-kivi-4", "kv-int4-kc", "kv-int4"])
def test_values_narrower_than_a_group_are_refused_before_a_weight_is_read(name, layout):
    """Keys are as wide as a group, values are half as wide, and rows of latents are no multiple of a group."""
    sizes = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "kv_lora_rank": 48}
    config = small_config("deepseek2", **sizes)
    source = Unread(config | {CONFIG_KEY: {"format": name}}, random_weights(config))
    with pytest.raises(InputError, match="groups of 32 channels do not divide a head of 16"):
        load_model(source, RunOptions(cache=layout))
    with pytest.raises(InputError, match="groups of 32 channels do not divide a head of 16"):
        predict_memory(source, 64, spec=CacheSpec(layout))


@pytest.mark.parametrize("cuts", [(), (1, 31, 33, 64, 69), tuple(range(1, 70))], ids=["one run", "varlen", "each"])
def test_groups_of_tokens_are_encoded_once_they_are_full(cuts):
    scheme, (q, k, v) = calibrated_scheme("kv-int4-kc"), make_qkv(70)
    got = feed(torch_cache(MODEL, scheme, batch=2, capacity=8), q, k, v, cuts)[:, :, -1:]
    keys, values = scheme.format.keys.round_trip(k), scheme.format.values.round_trip(v)
    assert torch.equal(keys[:, :, 64:], k[:, :, 64:])
    assert_close(got, causal_attention(q[:, :, -1:], keys, values, MODEL.attention_rule(1)), atol=1e-5)


@pytest.mark.parametrize("name", NO_RESIDUAL)
@pytest.mark.parametrize("seq_len", [0, 17, 32, 64, 66])
def test_truncate_forgets_the_rest(name, seq_len):
    scheme, (q, k, v) = calibrated_scheme(name), make_qkv(70)
    cache = torch_cache(MODEL, scheme, batch=2)
    for layer in range(2):
        cache.attend(layer, q, k, v, torch.arange(70))
    cache.advance(70)
    cache.truncate(seq_len)
    assert cache.seq_len == seq_len
    other = make_qkv(5, seed=1)
    got = cache.attend(1, *other, torch.arange(seq_len, seq_len + 5))
    k_scale, v_scale = layer_scales(scheme, 1)
    group = scheme.format.keys.token_group
    whole = 64 if group > 1 else 70  # tokens that were encoded before the cut
    keys = torch.cat([scheme.format.keys.round_trip(k[:, :, :whole], k_scale), k[:, :, whole:]], dim=2)[:, :, :seq_len]
    held = seq_len // group * group
    tail = torch.cat([keys[:, :, held:], other[1]], dim=2)
    keys = torch.cat([keys[:, :, :held], scheme.format.keys.round_trip(tail, k_scale)], dim=2)
    values = scheme.format.values.round_trip(torch.cat([v[:, :, :seq_len], other[2]], dim=2), v_scale)
    assert_close(got, causal_attention(other[0], keys, values, MODEL.attention_rule(1)), atol=1e-5)


@pytest.mark.parametrize("name", KV_FORMATS)
def test_bytes_a_token(name):
    scheme, (q, k, v) = calibrated_scheme(name), make_qkv(64)
    cache = torch_cache(MODEL, scheme, batch=2, capacity=64)
    for layer in range(2):
        cache.attend(layer, q, k, v, torch.arange(64))
    cache.advance(64)
    assert cache.size_bytes == 2 * 2 * scheme.format.size_bytes(64, 2, 32)
    assert scheme.format.residual or cache.size_bytes == 2 * 64 * cache.bytes_per_token


@pytest.mark.parametrize("name", KV_FORMATS)
def test_a_model_uses_the_format_that_its_config_names(name):
    source = ArraySource(CONFIG | {CONFIG_KEY: calibrated_scheme(name).config_entry()}, random_weights(CONFIG))
    plain = load_model(ArraySource(CONFIG, random_weights(CONFIG)), impl="reference")
    model = load_model(source, impl="reference")
    tokens = torch.from_numpy(np.random.default_rng(2).integers(160, size=(2, 64)))
    whole = model(tokens)
    assert is_in_torch(model.new_cache())
    assert_close(model(tokens, model.new_cache(batch=2)), whole, atol=1e-4)
    assert not torch.equal(whole, plain(tokens)), "the format changes logits"


def test_impossible_sizes():
    with pytest.raises(InputError, match="batch 0"):
        torch_cache(MODEL, calibrated_scheme("kv-int8"), batch=0)
    cache = torch_cache(MODEL, calibrated_scheme("kv-int8"))
    with pytest.raises(InputError, match="context holds 256"):
        cache.attend(0, *make_qkv(257), torch.arange(257))
    with pytest.raises(ValueError, match="truncate to 3"):
        cache.truncate(3)


@pytest.mark.parametrize("name", KV_FORMATS)
def test_predicted_bytes_match_the_cache(name):
    source = ArraySource(CONFIG | {CONFIG_KEY: calibrated_scheme(name).config_entry()}, random_weights(CONFIG))
    predicted = predict_memory(source, context=64, batch=2, impl="reference")
    in_floats = 2 * 2 * (32 + 32) * 2  # layers, kv heads, keys and values in float16
    bytes_per_token = torch_cache(MODEL, calibrated_scheme(name)).bytes_per_token
    assert predicted.kv_bytes_per_token == (in_floats if KV_FORMATS[name].residual else bytes_per_token)
    assert predicted.kv_bytes == 2 * 64 * predicted.kv_bytes_per_token
