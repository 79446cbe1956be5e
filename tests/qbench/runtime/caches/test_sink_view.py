"""Windows with sinks against a loop over queries that joins the kept tokens and counts from 0."""

import math

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import options_of, spec_of
from support.caches import is_in_torch
from support.close import assert_close

from qbench.runtime import Model, load_model
from qbench.runtime.attention.rope import far_rotation, inverse_frequencies, rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kinds import MAX_CHUNK_TOKENS, plan_cache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.view.sink_view import SinkView
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

KIND, WINDOW, SINKS = "sinks:3+9", 9, 3
TOLERANCE = 1e-4  # float32 logits of order 1, sums in another order
PARTS = (20, 1, 2, 21, 1)  # a prompt that is longer than the kept tokens, tokens one by one, and many at once
# A value that float32 rounds the other way is off by a step of its format, of a logit of order 1.
STEPS_OF = {"kv-f16": 2**-11, "kv-bf16": 2**-8, "kv-fp8": 2**-3, "kv-int8": 2**-6}


def model_of(
    architecture: str = "llama", kv: str | None = None, kind: str = "dynamic", impl="auto", **changes
) -> Model:
    config = small_config(architecture, **({"head_dim": 32} if architecture != "deepseek2" else {}) | changes)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    return load_model(
        ArraySource(config | entry, random_weights(config)),
        options_of(kind),
        impl=impl,
    )


def tokens_of(batch: int, seq_len: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(150, (batch, seq_len), generator=torch.Generator().manual_seed(seed))


def stepwise(model: Model, cache: Cache, tokens: torch.Tensor, parts=PARTS) -> torch.Tensor:
    return torch.cat([model(part, cache) for part in tokens.split(parts, dim=1)], 1)


class SlowSinks(Cache):
    """One sequence, a token at a time: keys and values of all tokens as they came, in Python lists."""

    one_width = False
    bytes_per_token = 0
    size_bytes = 0

    def __init__(self, model: Model) -> None:
        super().__init__(model.config)
        self.config = model.config
        self.held: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(model.config.num_layers)]

    def next_position(self, seq_lens: int) -> int:
        return 0  # nothing here looks at it, and the model may not think that its context is full

    def attend(self, layer, q, k, v, positions):
        raise AssertionError("not rotated keys were expected")

    def rope_attend(self, layer, q, k, v, rope, positions):
        held, rule = self.held[layer], self.rules[layer]
        held.append((k[0, :, 0].double().numpy(), v[0, :, 0].double().numpy()))
        last = len(held) - 1
        window = min(rule.window or WINDOW, WINDOW)
        # All that the longest window keeps has a place, though a layer with a smaller window sees less of it.
        kept = [i for i in range(last + 1) if i < SINKS or i > last - WINDOW]
        seen = [(place, i) for place, i in enumerate(kept) if i < SINKS or i > last - window]
        out = np.zeros(tuple(q[0, :, 0].shape))
        keys = [self.turn(held[i][0], place, layer) for place, i in seen]  # [G, D] each
        for h, query in enumerate(self.turn(q[0, :, 0].double().numpy(), len(kept) - 1, layer)):
            g = h * k.shape[1] // q.shape[1]
            scores = [rule.scale * query @ key[g] for key in keys]
            if rule.softcap:
                scores = [rule.softcap * math.tanh(score / rule.softcap) for score in scores]
            weights = np.exp(np.array(scores) - max(scores))
            out[h] = sum(w * held[i][1][g] for w, (_, i) in zip(weights / weights.sum(), seen, strict=True))
        return torch.from_numpy(out).float()[None, :, None]

    def turn(self, x: np.ndarray, position: int, layer: int) -> np.ndarray:
        frequencies = inverse_frequencies(self.config.rope_of(layer), self.config.rope_dim).double().numpy()
        half = len(frequencies)
        first, second = x[:, :half], x[:, half : 2 * half]
        cos, sin = np.cos(position * frequencies), np.sin(position * frequencies)
        return np.concatenate((first * cos - second * sin, second * cos + first * sin, x[:, 2 * half :]), 1)


def slow(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    """[1, T, V] logits"""
    cache = SlowSinks(model)
    return torch.cat([model(token, cache) for token in tokens.split(1, dim=1)], 1)


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gemma3"])
def test_sink_view_matches_a_loop_over_queries(architecture, impl):
    model, tokens = model_of(architecture, impl=impl), tokens_of(1, 45)
    cache = model.new_cache(spec=spec_of(KIND))
    in_kernels = impl == "auto" and has_cpu_kernels() and architecture != "gemma2"  # whose scores are capped
    assert isinstance(cache.view, SinkView) and is_in_torch(cache) == (not in_kernels)
    expected = slow(model, tokens)
    assert_close(stepwise(model, cache, tokens), expected, atol=TOLERANCE)
    assert_close(stepwise(model, model.new_cache(spec=spec_of(KIND)), tokens, 1), expected, atol=TOLERANCE)
    assert (stepwise(model, model.new_cache(spec=spec_of("window:9")), tokens) - expected).abs().max() > 100 * TOLERANCE


def test_until_the_window_is_full_it_is_the_dynamic_cache():
    model, tokens = model_of(), tokens_of(2, 12)
    expected = stepwise(model, model.new_cache(2), tokens, (7, 1, 4))
    assert_close(stepwise(model, model.new_cache(2, spec=spec_of(KIND)), tokens, (7, 1, 4)), expected, atol=TOLERANCE)


def test_texts_are_longer_than_the_context_and_memory_does_not_grow():
    model, tokens = model_of(max_position_embeddings=40), tokens_of(1, 90)
    cache = model.new_cache(spec=spec_of(KIND))
    assert cache.max_chunk_tokens == 40 - (SINKS + WINDOW - 1)
    assert_close(model(tokens, cache), slow(model, tokens), atol=TOLERANCE)
    assert cache.seq_len == 90 and cache.places.page_size == 32  # sinks, a window and up to 15 tokens
    assert cache.size_bytes == 32 * cache.bytes_per_token
    assert cache.peak_bytes == 48 * cache.bytes_per_token  # 3 + 8 tokens of before and 29 new ones
    with pytest.raises(InputError, match="41 tokens, but the model's context holds 40"):
        model(tokens[:, :41])


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", STEPS_OF)
def test_formats_differ_by_less_than_their_steps(kv, impl, monkeypatch):
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")  # tiles round f16 by more than its step
    model, tokens = model_of(kv=kv, impl=impl), tokens_of(2, 45)
    cache = model.new_cache(2, spec=spec_of(KIND))
    got, exact = stepwise(model, cache, tokens), model_of()
    expected = stepwise(exact, exact.new_cache(2, spec=spec_of(KIND)), tokens)
    assert TOLERANCE / 10 < (got - expected).abs().max() < 8 * STEPS_OF[kv]
    memory = plan_cache(Asked(model.config, model.kv, spec_of(KIND), impl=impl))
    assert cache.bytes_per_token == memory.bytes_per_token
    assert memory.size_bytes(1000, 2) == cache.size_bytes == 2 * 32 * cache.bytes_per_token
    assert memory.size_bytes(7, 2) == 2 * 16 * cache.bytes_per_token


def test_far_angles_are_as_accurate_as_near_ones():
    frequency = torch.tensor([1.0, 0.3, 1e-4])
    positions = torch.tensor([0, 7, 1_000_003, 1 << 30])
    turns = positions.double().numpy()[:, None] * frequency.double().numpy()
    cos, sin = far_rotation(frequency, positions, 0.5)
    assert_close(cos[:, :3], 0.5 * np.cos(turns), atol=2.0**-21)
    assert_close(sin[:, 3:], 0.5 * np.sin(turns), atol=2.0**-21)
    assert torch.equal(cos[:, :3], cos[:, 3:]) and torch.equal(sin[:, :3], -sin[:, 3:])
    assert np.abs(rotation(frequency, positions, 0.5)[0][2, :3] - cos[2, :3]).max() > 2.0**-9


def test_rotations_that_change_with_the_text_are_done_when_keys_are_read():
    factors = {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16, "rope_type": "longrope"}
    model = model_of("phi3", rope_scaling=factors, original_max_position_embeddings=32)
    assert is_in_torch(model.new_cache(spec=spec_of(KIND)))


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_batches_of_unlike_lengths(impl):
    model, seq_lens = model_of(impl=impl), (30, 1, 14)
    rows = [tokens_of(1, seq_len + 5, seed)[0] for seed, seq_len in enumerate(seq_lens)]
    tokens = torch.full((3, 30), -1)
    for b, seq_len in enumerate(seq_lens):
        tokens[b, :seq_len] = rows[b][:seq_len]
    cache = model.new_cache(3, spec=spec_of(KIND))
    first = model(tokens, cache, num_valid=seq_lens)
    rest = model(torch.stack([row[-5:] for row in rows]), cache)
    for b, seq_len in enumerate(seq_lens):
        alone = model.new_cache(spec=spec_of(KIND))
        expected = stepwise(model, alone, rows[b][None], (seq_len, 5))[0]
        assert_close(torch.cat((first[b, :seq_len], rest[b])), expected, atol=TOLERANCE)


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen3"])
def test_every_path_gives_the_same_bits(architecture, kv):
    """Prompts of unlike lengths, tokens one by one and many at once."""
    config = small_config(architecture, head_dim=32)
    weights, entry = random_weights(config), {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: "q8_0" for name, value in weights.items() if value.ndim == 2}
    source, tokens = ArraySource(config | entry, weights, formats), tokens_of(2, 45)

    def logits(path: str) -> torch.Tensor:
        model = load_model(source, path=path)
        cache = model.new_cache(2, spec=spec_of(KIND))
        first = model(tokens[:, :20], cache, num_valid=[20, 7])
        assert path != "auto" or model.paths.choose(cache, 1)[0].name == "layers"
        return torch.cat([first[:, :7], stepwise(model, cache, tokens[:, 20:], (1, 2, 21, 1))], 1)

    expected = logits("python")
    for path in ("auto", "steps"):
        assert torch.equal(logits(path), expected)


def test_a_models_own_kind():
    model, tokens = model_of(kind=KIND), tokens_of(1, 45)
    assert_close(model(tokens), slow(model, tokens), atol=TOLERANCE)


def test_going_back():
    model, tokens, other = model_of(max_position_embeddings=1024), tokens_of(1, 600), tokens_of(1, 5, 1)
    cache = model.new_cache(spec=spec_of(KIND))
    model(tokens[:, :590], cache, last_only=True)
    for token in tokens[:, 590:].split(1, dim=1):
        model(token, cache)

    def check(seq_len: int) -> None:
        again = model.new_cache(spec=spec_of(KIND))
        if seq_len:
            model(tokens[:, :seq_len], again, last_only=True)
        got = model(other, cache, cache_position=range(seq_len, seq_len + 5))
        assert_close(got, model(other, again), atol=TOLERANCE)
        assert_close(model(tokens[:, :90], cache), model(tokens[:, :90], again), atol=TOLERANCE)

    check(592)
    with pytest.raises(InputError, match=r"truncate to 100, whose window begins at token 92, .* are gone"):
        model(other, cache, cache_position=range(100, 105))
    for seq_len in (2, 0):  # among the sinks, which are always there
        check(seq_len)


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_a_mark_is_gone_back_to_from_afar(impl):
    """Sequences of unlike lengths; after the mark come enough tokens to drop all that the window held."""
    model, tokens = model_of(impl=impl), tokens_of(2, 90)
    cache, again = (model.new_cache(2, spec=spec_of(KIND)) for _ in range(2))
    for each in (cache, again):
        model(tokens[:, :40], each, num_valid=[40, 23])
    cache.mark()
    assert_close(model(tokens[:, 40:], cache), model(tokens[:, 40:], again), atol=0)
    for num_tokens in (1, 50):
        cache.truncate(np.array([40, 23]))
        got = model(tokens[:, 40 : 40 + num_tokens], cache)
        fresh = model.new_cache(2, spec=spec_of(KIND))
        model(tokens[:, :40], fresh, num_valid=[40, 23])
        assert_close(got, model(tokens[:, 40 : 40 + num_tokens], fresh), atol=0)
    with pytest.raises(InputError, match=r"truncate to 45, .* are gone; go back to 0 or to a marked length"):
        cache.truncate(45)


@pytest.mark.parametrize(
    "architecture, kind, message",
    [
        ("deepseek2", KIND, "sinks .* DeepseekV2ForCausalLM rotates its keys before a cache has them"),
        ("gpt2", KIND, "GPT2LMHeadModel has no rotary positions"),
        ("bloom", KIND, "BloomForCausalLM has no rotary positions"),
        ("llama", "sinks:7+250", "a window of 250 and 7 sinks, but the model's context holds 256"),
    ],
)
def test_impossible_sink_views_are_refused(architecture, kind, message):
    config = small_config(architecture)
    model = load_model(ArraySource(config, random_weights(config)))
    with pytest.raises(InputError, match=message):
        model.new_cache(spec=spec_of(kind))
    with pytest.raises(InputError, match=message):
        plan_cache(Asked(model.config, None, spec_of(kind)))


def test_passes_have_the_usual_length():
    assert model_of(max_position_embeddings=1024).new_cache(spec=spec_of(KIND)).max_chunk_tokens == MAX_CHUNK_TOKENS
