"""KV caches that a search may choose."""

import pytest

from qbench.search.kv_choice import AUTO, AUTO_POLICIES, CacheChoice, KVWanted, kv_schemes, kv_sizes
from qbench.sources import open_source
from quant.errors import InputError
from quant.kv.source import KVSource
from quant.models import ModelConfig


def test_all_formats_that_find_their_scales_by_themselves():
    source = open_source("ref:llama")
    caches, config = kv_sizes(source, KVWanted(AUTO, 512)), ModelConfig.of(source)
    sizes = {cache.format: size_bytes for cache, size_bytes in caches.items()}
    assert {cache.policy for cache in caches} == {"full"}
    floats = config.num_layers * 512 * config.num_kv_heads * (config.head_dim + config.value_dim) * 4
    assert sizes["f32"] == floats == 2 * sizes["kv-f16"]
    assert {"kv-int8", "kv-fp8", "kv-int4", "kv-kivi-2"} < set(sizes) and not any("cal" in name for name in sizes)
    assert set(kv_schemes(caches, config)) == set(sizes) - {"f32"}
    assert kv_sizes(source, KVWanted("kv-int8", 512, batch=3)) == {CacheChoice("kv-int8"): 3 * sizes["kv-int8"]}


def test_a_policy_holds_its_part_of_the_cache():
    source = open_source("ref:llama")
    sizes = kv_sizes(source, KVWanted("f32,kv-int8", 1024, policies=("full", "snapkv:budget=25%", "sinks:4+252")))
    assert len(sizes) == 6
    for fmt in ("f32", "kv-int8"):
        whole = sizes[CacheChoice(fmt)]
        assert sizes[CacheChoice(fmt, "snapkv:budget=25%")] == whole / 4
        assert whole / 4 <= sizes[CacheChoice(fmt, "sinks:4+252")] < whole / 3  # a block more, which fills by token


def test_auto_leaves_out_pairs_that_the_model_cannot_have():
    source = open_source("ref:mla-moe")
    caches = kv_sizes(source, KVWanted(AUTO, 512, policies=(AUTO,)))
    assert {cache.policy for cache in caches} == set(AUTO_POLICIES)
    with pytest.raises(InputError, match="adakv"):
        kv_sizes(source, KVWanted(AUTO, 512, policies=("full", "adakv:budget=96")))


@pytest.mark.parametrize(
    ("text", "context", "says"),
    [
        ("kv-int5", 64, "unknown KV format 'kv-int5'; known are auto, f32, "),
        ("kv-fp8,kv-fp8-cal", 64, "kv-fp8-cal needs the ranges"),
        ("auto", 10**7, "a context of 10000000 tokens, but ref:llama holds"),
    ],
)
def test_impossible_kv_formats_are_refused(text, context, says):
    with pytest.raises(InputError, match=says):
        kv_sizes(open_source("ref:llama"), KVWanted(text, context))


def test_a_model_that_names_its_kv_format():
    with pytest.raises(InputError, match="names a KV format already"):
        kv_sizes(KVSource(open_source("ref:llama"), "kv-int8"), KVWanted(AUTO, 64))
