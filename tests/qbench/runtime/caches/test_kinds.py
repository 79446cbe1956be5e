"""Kinds of caches against the dynamic one of the same format, bit for bit if both keep all tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import options_of, spec_of
from support.close import assert_close

from qbench.run.cache_spec import CacheSpec
from qbench.runtime import Model, load_model
from qbench.runtime.caches.kinds import MAX_CHUNK_TOKENS, plan_cache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.kernel_storage import STORES
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

CONTEXT = 2048
PLAIN_FORMATS = [
    name for name in STORES if name is None or not (KV_FORMATS[name].calibrated or KV_FORMATS[name].residual)
]
FULL = ("static", f"window:{CONTEXT}", "paged")  # the window of all tokens


def model_of(
    architecture: str = "llama", kv: str | None = None, weights: str = "q8_0", impl="auto", kind="dynamic", **changes
) -> Model:
    changes = {"head_dim": 32, "max_position_embeddings": CONTEXT} | changes
    config = small_config(architecture, **changes)
    values = random_weights(config)
    entry = {} if kv is None else {CONFIG_KEY: scheme_of(kv, config["num_hidden_layers"]).config_entry()}
    formats = {name: weights for name, value in values.items() if value.ndim == 2}
    return load_model(
        ArraySource(config | entry, values, formats),
        options_of(kind),
        impl=impl,
    )


def scheme_of(kv: str, num_layers: int) -> KVScheme:
    """With scales that differ by layer if the format has scales."""
    scales = np.linspace(0.004, 0.02, num_layers, dtype=np.float32)[:, None]
    return KVScheme(KV_FORMATS[kv], *((scales, 1.5 * scales) if KV_FORMATS[kv].calibrated else ()))


def tokens_of(batch: int, seq_len: int) -> torch.Tensor:
    return torch.randint(150, (batch, seq_len), generator=torch.Generator().manual_seed(seq_len))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
@pytest.mark.parametrize("kind", FULL)
def test_full_budgets_are_the_dynamic_cache_bit_for_bit(kind, kv, impl):
    model, tokens = model_of(kv=kv, impl=impl), tokens_of(2, 70)
    one, other = model.new_cache(2, 70, spec=spec_of(kind)), model.new_cache(2, 70)
    for part in tokens.split((40, 1, 1, 28), dim=1):
        assert_close(model(part, one), model(part, other))
    one.truncate(50)
    other.truncate(50)
    assert_close(model(tokens[:, 3:9], one, last_only=True), model(tokens[:, 3:9], other, last_only=True))


@pytest.mark.parametrize("on", ["left", "right"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kind", ["none", *FULL])
@pytest.mark.usefixtures("inputs_of_8_bits")  # of many tokens as of few
def test_padded_batches(kind, impl, on):
    model, tokens, seq_lens = model_of(impl=impl), tokens_of(3, 23), [5, 1, 19]
    logits = []
    for cache in (model.new_cache(3, 30, spec=spec_of(kind)), model.new_cache(3, 30)):
        if on == "left":
            cache.pad_left([19 - seq_len for seq_len in seq_lens])
        first = model(tokens[:, :19], cache, num_valid=None if on == "left" else seq_lens)
        logits.append([first, model(tokens[:, 19:22], cache), model(tokens[:, 22:], cache, last_only=True)])
        assert cache.seq_lens.tolist() == [seq_len + 4 for seq_len in seq_lens]
    # Products of all tokens sum in another order than those of the new ones, and with q8_0 round their inputs again.
    atol = 0 if kind != "none" else 1e-4 if impl == "reference" else logits[1][0].nan_to_num().abs().max().item() / 127
    for got, expected in zip(*logits, strict=True):
        assert_close(got, expected, atol=atol)


@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int4-kc"])
@pytest.mark.parametrize("batch", [1, 3], ids="B={}".format)
def test_nothing_kept_is_a_prompt_of_all_tokens(batch, kv):
    model, tokens = model_of(kv=kv, weights="f32", impl="reference"), tokens_of(batch, 40)
    cache = model.new_cache(batch, spec=spec_of("none"))
    end, atol = 0, 1e-4  # the head reads fewer rows at once: the project's promise for float32 logits
    for size in (20, 1, 4, 1):
        end += size
        assert_close(model(tokens[:, end - size : end], cache), model(tokens[:, :end])[:, -size:], atol=atol)
    cache.truncate(10)
    rest = torch.cat((tokens[:, :10], tokens[:, 30:]), 1)
    assert_close(model(tokens[:, 30:], cache), model(rest)[:, -10:], atol=atol)
    assert cache.seq_len == 20 and cache.bytes_per_token == 0


def test_a_static_cache_ends_with_a_clear_error_and_stays_as_it_is():
    for impl, kv in (("auto", None), ("auto", "kv-int8"), ("reference", None), ("reference", "kv-int4-kc")):
        model = model_of(kv=kv, impl=impl)
        cache = model.new_cache(2, 33, spec=spec_of("static"))
        size, tokens = cache.size_bytes, tokens_of(2, 40)
        model(tokens[:, :30], cache)
        with pytest.raises(InputError, match="34 tokens, but the static cache has room for 33; make it larger"):
            model(tokens[:, 30:34], cache)
        expected = model.new_cache(2)
        model(tokens[:, :30], expected)
        assert_close(model(tokens[:, 30:33], cache), model(tokens[:, 30:33], expected))
        assert kv == "kv-int4-kc" or impl == "reference" or cache.size_bytes == size


# ---- windows


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
def test_a_models_window_is_all_that_is_kept(kv, impl):
    model, tokens = model_of("mistral", kv, impl=impl, sliding_window=40), tokens_of(2, 900)
    one, other = model.new_cache(2, spec=spec_of("window")), model.new_cache(2, 900)
    for part in tokens.split((200, 1, 250, 1, 200, 1, 1, 246), dim=1):
        assert_close(model(part, one), model(part, other))
    places = one.places
    held = [page for sequence in places.sequences for page in sequence.pages if page >= 0]
    assert len(held) * 16 <= 2 * (40 + MAX_CHUNK_TOKENS + 2 * 16)
    assert one.size_bytes == places.pool.num_pages * places.pool.page_bytes < 2 * 350 * other.bytes_per_token


def mixed_model(architecture: str, kv: str | None = None, impl: str = "auto") -> Model:
    types = {"num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    return model_of(architecture, kv, impl=impl, sliding_window=24, **(types if architecture == "mistral" else {}))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", [None, "kv-int8", "kv-fp8-cal"])
@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gemma3"])
def test_layers_without_a_window_keep_all_next_to_windowed_ones(architecture, kv, impl):
    model, tokens = mixed_model(architecture, kv, impl), tokens_of(2, 700)
    windows = [model.config.attention_rule(layer).window for layer in range(model.config.num_layers)]
    assert 0 < windows.count(0) < len(windows)
    one, other = model.new_cache(2, 700, spec=spec_of("window")), model.new_cache(2, 700)
    assert len(one.groups) == 2 and one.bytes_per_token == other.bytes_per_token
    for part in tokens.split((200, 1, 250, 1, 200, 48), dim=1):
        assert_close(model(part, one), model(part, other))
    for cache in (one, other):
        cache.truncate(680)
    assert_close(model(tokens[:, :3], one), model(tokens[:, :3], other))
    predicted = plan_cache(Asked(model.config, model.kv, spec_of("window"), impl=impl)).size_bytes(700, 2)
    assert sum(part.pool.num_pages * part.pool.page_bytes for part in one.groups) == predicted
    assert predicted < 0.85 * plan_cache(Asked(model.config, model.kv, impl=impl)).size_bytes(700, 2)


def test_mixed_layers_of_unlike_lengths_and_going_back():
    model, tokens = mixed_model("mistral"), tokens_of(3, 400)
    seq_lens, caches = [200, 3, 90], [model.new_cache(3, 400, spec=spec_of(kind)) for kind in ("window", "dynamic")]
    for cache in caches:
        cache.pad_left([0, 197, 110])
    logits = [[model(tokens[:, :200], cache), model(tokens[:, 200:204], cache)] for cache in caches]
    for one, other in zip(*logits, strict=True):
        assert torch.equal(one.nan_to_num(9), other.nan_to_num(9))
    starts = np.array(seq_lens)
    one, other = (model(tokens[:, :2], cache, cache_position=starts[:, None] + range(2)) for cache in caches)
    assert_close(one, other)
    assert caches[0].seq_lens.tolist() == [seq_len + 2 for seq_len in seq_lens]


@pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
def test_longer_prompts_are_taken_in_parts():
    model, tokens = model_of("mistral", weights="f32", sliding_window=40), tokens_of(1, 700)
    expected = model(tokens, model.new_cache(1, 700))
    assert_close(model(tokens, model.new_cache(spec=spec_of("window"))), expected)
    assert_close(model(tokens, model.new_cache(spec=spec_of("window")), last_only=True), expected[:, -1:])
    with pytest.raises(InputError, match=f"700 columns with padding, but this cache takes {MAX_CHUNK_TOKENS} tokens"):
        model(tokens, model.new_cache(spec=spec_of("window")), num_valid=[650])


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_a_window_that_the_model_lacks_is_refused(impl):
    model, tokens = model_of(weights="f32", impl=impl), tokens_of(1, 60)
    reference = model_of(weights="f32", impl="reference")
    masked = reference.new_cache()
    masked.rules = [replace(rule, window=9) for rule in masked.rules]
    expected = reference(tokens, masked)
    assert (expected - reference(tokens)).abs().max() > 0.1
    cache = model.new_cache(spec=spec_of("window:9"))
    got = torch.cat([model(part, cache) for part in tokens.split((20, 1, 39), dim=1)], 1)
    assert_close(got, expected, atol=1e-4)


def test_going_back_is_possible_as_far_as_the_spare_room_reaches():
    model, tokens = model_of("mistral", sliding_window=40), tokens_of(1, 600)
    one, other = model.new_cache(spec=spec_of("window")), model.new_cache()
    for cache in (one, other):
        model(tokens, cache, last_only=True)
        model(tokens[:, :MAX_CHUNK_TOKENS], cache, last_only=True)
        cache.truncate(600)
    assert_close(model(tokens[:, :3], one), model(tokens[:, :3], other))
    with pytest.raises(ValueError, match=r"truncate to 300, whose window begins at token 261, .* are gone"):
        one.truncate(300)
    one.truncate(0)
    other.truncate(0)
    assert_close(model(tokens[:, :3], one), model(tokens[:, :3], other))


# ---- pages


def test_pages_grow_with_their_sequences():
    model, tokens = model_of(), tokens_of(2, 200)
    cache, other = model.new_cache(2, 16, spec=spec_of("paged")), model.new_cache(2)
    for part in tokens.split(50, dim=1):
        assert_close(model(part, cache), model(part, other))
    pool = cache.places.pool
    assert pool.num_pages == 32 and cache.size_bytes == 2 * 13 * pool.page_bytes


@pytest.mark.parametrize("kind", ["none", "static", "paged", "window:30"])
def test_latent_attention(kind):
    model, tokens = model_of("deepseek2", weights="f32", impl="reference"), tokens_of(2, 30)
    cache = model.new_cache(2, 30, spec=spec_of(kind))
    got = torch.cat([model(part, cache) for part in tokens.split((20, 1, 9), dim=1)], 1)
    assert_close(got, model(tokens), atol=1e-4)


# ---- bad input


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"spec": spec_of("window")},
            "all layers of this model attend to all tokens; give them a window",
        ),
        ({"spec": spec_of("paged"), "mode": "absorbed"}, "'absorbed' is one of latent attention, which Llama"),
        ({"spec": spec_of("window:9"), "mode": "absorbed"}, "'absorbed' is one of latent attention, which Llama"),
        ({"spec": spec_of("sinks:3+9"), "mode": "absorbed"}, "cache sinks:3.9 has no modes"),
        (
            {"spec": spec_of("none"), "mode": "absorbed"},
            "cache none has no modes; a mode goes with cache dynamic",
        ),
        ({"spec": spec_of("none"), "batch": 0}, "batch 0"),
        ({"spec": spec_of("paged"), "capacity": 0}, "capacity 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        model_of().new_cache(**arguments)


UNKNOWN = "unknown cache 'static '; known: dynamic, static, paged, none; did you mean 'static'"
IS_POLICY = "cache 'window:9' is a policy now"
NEEDS_DYNAMIC = "cache paged goes with policy full; policy window:9 needs cache dynamic"


@pytest.mark.parametrize("layout, message", {"static ": UNKNOWN, "window:9": IS_POLICY, "paged": NEEDS_DYNAMIC}.items())
def test_an_impossible_layout_is_refused(layout, message):
    with pytest.raises(InputError, match=message):
        CacheSpec(layout, "window:9")


def test_formats_that_pages_do_not_hold():
    with pytest.raises(InputError, match="kv-int4-kc encodes several tokens together"):
        model_of(kv="kv-int4-kc").new_cache(spec=spec_of("paged"))


def test_a_models_own_kind():
    model = model_of(kind="window:9", weights="f32")
    assert (
        model.new_cache().max_chunk_tokens == MAX_CHUNK_TOKENS
        and model.new_cache(spec=spec_of("dynamic")).max_chunk_tokens is None
    )
    tokens = tokens_of(1, 60)
    cache = model.new_cache()
    steps = torch.cat([model(part, cache) for part in tokens.split(1, dim=1)], 1)
    # Products of 60 tokens sum in another order than those of one.
    assert_close(model(tokens), steps, atol=steps.abs().max().item() * 2**-14)
    assert (model_of(weights="f32")(tokens) - steps).abs().max() > 0.1, "a prompt without a cache sees the window, too"
