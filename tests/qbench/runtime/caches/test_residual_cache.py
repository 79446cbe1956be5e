"""Caches of KV formats with a residual against the algorithm of KIVI, one token and one head at a time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.caches import kernel_cache, torch_cache
from support.close import assert_close
from support.logit_bounds import relative_rms

from qbench.runtime import load_model
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.storage.residual_storage import ResidualStorage
from qbench.runtime.memory import MemoryPredictor
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

CONFIG = small_config(head_dim=64, max_position_embeddings=512)  # 2 layers, 4 heads, 2 kv heads of 64
MODEL = ModelConfig.from_hf(CONFIG)
KIVI = ["kv-kivi-2", "kv-kivi-4"]
NUM_TOKENS = 230
needs_cpu_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
ROUND_OFF = 2.0**-24 * 2**5 * 8 * 2**2  # scores of up to 2^5, sums of 64 float32 products, off; values of up to 2^2


def is_residual(cache) -> bool:
    return isinstance(cache.memories[0], ResidualStorage)


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
def test_any_division_of_the_text_follows_the_algorithm(name):
    scheme, qkv = KVScheme(KV_FORMATS[name]), make_qkv()
    want = expected(name, *qkv)
    for cuts in ((), (1, 159, 161, 191), range(1, NUM_TOKENS)):
        got = feed(torch_cache(MODEL, scheme, batch=2, capacity=8), *qkv, cuts)
        assert_close(got.double(), want, atol=ROUND_OFF)
    uncached = NoCache(MODEL, 2, scheme).attend(1, *qkv, torch.arange(NUM_TOKENS))
    assert_close(uncached.double(), want, atol=ROUND_OFF)


@pytest.mark.parametrize("name", KIVI)
@pytest.mark.parametrize("kept", [0, 40, 160, 190, 200, 229])
def test_truncate_leaves_encoded_tokens_as_they_are_read(name, kept):
    fmt, (q, k, v) = KV_FORMATS[name], make_qkv()
    cache = torch_cache(MODEL, KVScheme(fmt), batch=2)
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


def model_of(name: str, architecture: str = "llama", **options):
    changes = {"head_dim": 64, "max_position_embeddings": 512} | options.pop("changes", {})
    config = small_config(architecture, **changes) | {CONFIG_KEY: KVScheme(KV_FORMATS[name]).config_entry()}
    source = ArraySource(config, random_weights(config))
    return load_model(source, **options), source


@pytest.mark.parametrize("impl", ["reference", "auto"])
@pytest.mark.parametrize("name", KIVI)
def test_bytes_follow_the_context(name, impl):
    model, source = model_of(name, impl=impl)
    predictor, in_kernels = MemoryPredictor(source, impl=impl), is_residual(model.new_cache())
    for context in (100, 159, 160, 300, 480):
        cache = model.new_cache(batch=2, capacity=context)
        model(torch.zeros(2, context, dtype=torch.int64), cache, last_only=True)
        predicted = predictor.at(context, 2)
        assert predicted.kv_bytes == cache.size_bytes
        assert in_kernels or predicted.kv_bytes == 2 * context * predicted.kv_bytes_per_token
    assert predictor.at(480).kv_bytes_per_token < predictor.at(159).kv_bytes_per_token == 2 * 2 * 2 * 64 * 2


@needs_cpu_kernels
@pytest.mark.parametrize("cuts", [(), (1, 159, 161, 191), range(1, NUM_TOKENS)], ids=["one run", "varlen", "each"])
@pytest.mark.parametrize("name", KIVI)
def test_kernels_attend_as_torch_does(name, cuts):
    scheme, qkv = KVScheme(KV_FORMATS[name]), make_qkv()
    want = feed(torch_cache(MODEL, scheme, batch=2), *qkv, ())
    got = feed(kernel_cache(MODEL, scheme, batch=2, capacity=8), *qkv, cuts)
    # Queries times the channels' scales are rounded to 16 bits, so that a score of up to 2^5 is off by 2^-9 or so.
    assert_close(got, want, atol=2.0**-9)
    assert (got - want).square().mean() < 2.0**-22


@needs_cpu_kernels
@pytest.mark.parametrize("name", KIVI)
@pytest.mark.parametrize("kept", [0, 40, 160, 190, 229])
def test_kernels_truncate_as_torch_does(name, kept):
    scheme, (q, k, v), new = KVScheme(KV_FORMATS[name]), make_qkv(), make_qkv(100, seed=1)
    outs = []
    for cache in (torch_cache(MODEL, scheme, batch=2), kernel_cache(MODEL, scheme, batch=2)):
        for layer in range(2):
            cache.attend(layer, q, k, v, torch.arange(NUM_TOKENS))
        cache.advance(NUM_TOKENS)
        cache.truncate(np.array([kept, 230]))
        cache.truncate(kept)
        outs.append(cache.attend(1, *new, torch.arange(kept, kept + 100)))
    assert_close(outs[1], outs[0], atol=2.0**-9)


@needs_cpu_kernels
@pytest.mark.parametrize("path", ["layers", "steps", "attention-steps", "net-steps", "python"])
@pytest.mark.parametrize("name", KIVI)
def test_every_path_attends_to_the_same(name, path):
    tokens = torch.from_numpy(np.random.default_rng(3).integers(160, size=(2, 300)))
    reference = model_of(name, impl="reference")[0]
    want, model = reference(tokens, reference.new_cache(batch=2)), model_of(name, path=path)[0]
    for cuts in ((), (170, 171, 172)):
        cache = model.new_cache(batch=2)
        assert is_residual(cache)
        parts = [model(tokens[:, start:end], cache) for start, end in pairwise((0, *cuts, 300))]
        # A code now and then is the next one, as float32 sums differ in their last bit.
        assert relative_rms(torch.cat(parts, dim=1), want) < 2.0**-11


@needs_cpu_kernels
@pytest.mark.parametrize("architecture", ["phi3", "mistral"])
def test_partly_rotated_heads_and_windows(architecture):
    changes = {"phi3": {"partial_rotary_factor": 0.5}, "mistral": {"sliding_window": 150}}[architecture]
    tokens = torch.from_numpy(np.random.default_rng(3).integers(160, size=(2, 300)))
    reference = model_of("kv-kivi-4", architecture, changes=changes, impl="reference")[0]
    model = model_of("kv-kivi-4", architecture, changes=changes)[0]
    want, cache = reference(tokens, reference.new_cache(batch=2)), model.new_cache(batch=2)
    assert is_residual(cache)
    assert relative_rms(model(tokens, cache), want) < 2.0**-11


@needs_cpu_kernels
def test_sequences_of_their_own_length_in_one_forward_pass():
    model = model_of("kv-kivi-2")[0]
    tokens = torch.from_numpy(np.random.default_rng(3).integers(160, size=(2, 250)))
    cache = model.new_cache(batch=2)
    both = [model(tokens[:, :200], cache, num_valid=[200, 37]), model(tokens[:, 200:], cache, num_valid=[1, 50])]
    for b, lengths in enumerate(((200, 1), (37, 50))):
        alone = model.new_cache(batch=1)
        for part, start, length in zip(both, (0, 200), lengths, strict=True):
            got = model(tokens[b : b + 1, start : start + length], alone)
            assert relative_rms(part[b : b + 1, :length], got) < 2.0**-11


def test_tokens_that_fit_take_no_more_than_the_room():
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS["kv-kivi-2"]).config_entry()}
    cache = MemoryPredictor(ArraySource(CONFIG | entry, random_weights(CONFIG)), impl="reference").cache
    for room in (-5, 0, 1023, 1024, 160_000, 180_000):
        fitting = cache.num_tokens_in(room)
        assert fitting == 0 or cache.size_bytes(fitting, 1) <= room
        assert room < cache.size_bytes(fitting + 1, 1)


def test_pages_that_sequences_share_are_refused():
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS["kv-kivi-4"]).config_entry()}
    model = load_model(ArraySource(CONFIG | entry, random_weights(CONFIG)))
    with pytest.raises(InputError, match="kv-kivi-4 encodes several tokens together"):
        model.new_cache(spec=spec_of("paged"))
