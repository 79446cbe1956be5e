"""Caches of KV formats with a residual against the algorithm of KIVI, one token and one head at a time."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.close import assert_close

from qbench.runtime import load_model
from qbench.runtime.caches.cache import causal_attention
from qbench.runtime.caches.quantized_cache import QuantizedCache, RoundTripCache
from qbench.runtime.memory import MemoryPredictor
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

CONFIG = small_config(head_dim=64, max_position_embeddings=512)  # 2 layers, 4 heads, 2 kv heads of 64
MODEL = ModelConfig.from_hf(CONFIG)
KIVI = ["kv-kivi-2", "kv-kivi-4"]
NUM_TOKENS = 230
ROUND_OFF = 2.0**-24 * 2**5 * 8 * 2**2  # scores of up to 2^5, sums of 64 float32 products, off; values of up to 2^2


def make_qkv(num_tokens: int = NUM_TOKENS, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, heads, num_tokens, 64, generator=generator) for heads in (4, 2, 2))
    k[..., 5] *= 10
    return [q, k, v]


def quantized(x: np.ndarray, bits: int) -> np.ndarray:
    """x [n] -> scale * code + zero point, both float16"""
    zero_point = np.float64(np.float16(x.min()))
    scale = np.float64(np.float16((x.max() - zero_point) / (2**bits - 1)))
    return scale * np.clip(np.rint((x - zero_point) / scale), 0, 2**bits - 1) + zero_point


def kivi_ref(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bits: int) -> torch.Tensor:
    """Outputs [T, D] float64 of the queries of one head, q, k, v [T, D], decoded one by one.

    source  Liu et al. 2024, arXiv:2402.02750, algorithm 1, with 32 tokens that leave the residual at a time
    """
    keys, values = np.empty((0, 64)), np.empty((0, 64))
    recent_keys, recent_values = np.empty((0, 64)), np.empty((0, 64))
    outputs = []
    for query, key, value in zip(*(x.double().numpy() for x in (q, k.half(), v.half())), strict=True):
        recent_keys = np.concatenate([recent_keys, key[None]])
        recent_values = np.concatenate([recent_values, value[None]])
        if len(recent_keys) == 128 + 32:
            channels = [quantized(channel, bits) for channel in recent_keys[:32].T]
            tokens = [np.concatenate([quantized(x, bits) for x in np.split(token, 2)]) for token in recent_values[:32]]
            keys, recent_keys = np.concatenate([keys, np.stack(channels, axis=1)]), recent_keys[32:]
            values, recent_values = np.concatenate([values, np.stack(tokens)]), recent_values[32:]
        scores = np.concatenate([keys, recent_keys]) @ query / 8
        weights = np.exp(scores - scores.max())
        outputs.append(weights / weights.sum() @ np.concatenate([values, recent_values]))
    return torch.from_numpy(np.stack(outputs))


def expected(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    bits = int(name[-1])
    heads = [[kivi_ref(q[b, h], k[b, h // 2], v[b, h // 2], bits) for h in range(4)] for b in range(2)]
    return torch.stack([torch.stack(row) for row in heads])


def feed(cache, q, k, v, cuts) -> torch.Tensor:
    outputs = []
    for start, end in zip([0, *cuts], [*cuts, q.shape[2]], strict=True):
        outputs.append(cache.attend(1, *(x[:, :, start:end] for x in (q, k, v)), torch.arange(start, end)))
        cache.advance(end - start)
    return torch.cat(outputs, dim=2)


@pytest.mark.parametrize("name", KIVI)
def test_follows_the_algorithm_however_the_text_is_cut(name):
    scheme, qkv = KVScheme(KV_FORMATS[name]), make_qkv()
    want = expected(name, *qkv)
    for cuts in ((), (1, 159, 161, 191), range(1, NUM_TOKENS)):
        got = feed(QuantizedCache(MODEL, scheme, batch=2, capacity=8), *qkv, cuts)
        assert_close(got.double(), want, atol=ROUND_OFF)
    uncached = RoundTripCache(MODEL, scheme, batch=2).attend(1, *qkv, torch.arange(NUM_TOKENS))
    assert_close(uncached.double(), want, atol=ROUND_OFF)


@pytest.mark.parametrize("name", KIVI)
@pytest.mark.parametrize("kept", [0, 40, 160, 190, 200, 229])
def test_truncate_leaves_encoded_tokens_as_they_are_read(name, kept):
    fmt, (q, k, v) = KV_FORMATS[name], make_qkv()
    cache = QuantizedCache(MODEL, KVScheme(fmt), batch=2)
    for layer in range(2):
        cache.attend(layer, q, k, v, torch.arange(NUM_TOKENS))
    cache.advance(NUM_TOKENS)
    cache.truncate(kept)
    new = make_qkv(3, seed=1)
    got = cache.attend(1, *new, torch.arange(kept, kept + 3))
    sides = []
    for codec, x, later in ((fmt.keys, k, new[1]), (fmt.values, v, new[2])):
        encoded = codec.round_trip(x[:, :, :96].half().float())  # 230 tokens before the cut
        floats = torch.cat([encoded.half().float(), x[:, :, 96:].half().float()], dim=2)[:, :, :kept]
        floats = torch.cat([floats, later.half().float()], dim=2)
        num_encoded = fmt.num_encoded(kept + 3)
        still = min(num_encoded, fmt.num_encoded(kept))
        again = codec.round_trip(floats[:, :, still:num_encoded])
        sides.append(torch.cat([encoded[:, :, :still], again, floats[:, :, num_encoded:]], dim=2))
    want = causal_attention(new[0], *sides, MODEL.attention_rule(1))
    assert_close(got[:, :, -1:], want[:, :, -1:], atol=ROUND_OFF)


@pytest.mark.parametrize("name", KIVI)
def test_bytes_follow_the_context(name):
    source = ArraySource(CONFIG | {CONFIG_KEY: KVScheme(KV_FORMATS[name]).config_entry()}, random_weights(CONFIG))
    model, predictor = load_model(source, impl="reference"), MemoryPredictor(source, impl="reference")
    for context in (100, 159, 160, 300, 480):
        cache = model.new_cache(batch=2, capacity=context)
        model(torch.zeros(2, context, dtype=torch.int64), cache, last_only=True)
        predicted = predictor.at(context, 2)
        assert predicted.kv_bytes == cache.size_bytes == 2 * context * predicted.kv_bytes_per_token
    assert predictor.at(480).kv_bytes_per_token < predictor.at(159).kv_bytes_per_token == 2 * 2 * 2 * 64 * 2


def test_tokens_that_fit_take_no_more_than_the_room():
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS["kv-kivi-2"]).config_entry()}
    cache = MemoryPredictor(ArraySource(CONFIG | entry, random_weights(CONFIG)), impl="reference").cache
    for room in (-5, 0, 1023, 1024, 160_000, 180_000):
        fitting = cache.num_tokens_in(room)
        assert fitting == 0 or cache.size_bytes(fitting, 1) <= room
        assert room < cache.size_bytes(fitting + 1, 1)


@pytest.mark.parametrize("spec", ["paged", "window:200", "sinks:4+200", "snapkv:budget=200"])
def test_what_moves_or_evicts_single_tokens_is_refused(spec):
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS["kv-kivi-4"]).config_entry()}
    model = load_model(ArraySource(CONFIG | entry, random_weights(CONFIG)))
    with pytest.raises(InputError, match="kv-kivi-4 encodes several tokens together"):
        model.new_cache(spec=spec_of(spec))
